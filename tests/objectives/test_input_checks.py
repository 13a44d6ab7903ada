import numpy as np
import pytest
import torch

from diptych.errors import ScoreError
from diptych.objectives.input_checks import check_device, check_flags, check_floats, checks_values, refuse_where


def test_values_are_checked_where_nobody_has_to_wait_for_them():
    assert checks_values(torch.device("cpu"))
    assert not checks_values(torch.device("cuda"))
    assert not checks_values(torch.device("meta"))
    with torch.autograd.set_detect_anomaly(True):
        assert checks_values(torch.device("cuda"))
        assert not checks_values(torch.device("meta"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 2)), "scores must be a torch tensor, not ndarray; use torch.as_tensor"),
        (
            torch.zeros(2, 2, dtype=torch.int64),
            r"scores of torch.int64; convert to floating point, such as scores.float\(\)",
        ),
        (torch.zeros(2, dtype=torch.complex64), "scores of torch.complex64"),
        (torch.zeros(0, 4), r"scores of shape \(0, 4\); pass at least one row"),
        (torch.tensor(1.0), r"scores of shape \(\)"),
    ],
)
def test_what_is_not_floats(values, message):
    with pytest.raises(ScoreError, match=f"^{message}"):
        check_floats("scores", values)


def test_floats_of_any_precision():
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        check_floats("scores", torch.zeros(1, dtype=dtype))


def test_what_is_not_a_mask():
    check_flags("positives", torch.tensor([True]))
    for mask, found in (
        (torch.ones(2), "torch.float32; compare first, such as positives > 0"),
        (torch.ones(2).long(), "torch.int64; compare first"),
        ([True], "list; use torch.as_tensor"),
        (np.array([True]), "ndarray; use torch.as_tensor"),
    ):
        with pytest.raises(ScoreError, match=f"^positives must be a tensor of torch.bool, not {found}"):
            check_flags("positives", mask)


def test_another_device():
    values = torch.zeros(2, device="meta")
    check_device("texts", values, torch.device("meta"))
    with pytest.raises(ScoreError, match=r"^texts on meta, the rest of the batch on cpu; move with \.to\('cpu'\)$"):
        check_device("texts", values, torch.device("cpu"))


def test_the_first_place_is_named():
    refuse_where(torch.zeros(2, 2, dtype=torch.bool), "scores", "not a number (NaN)")
    with pytest.raises(ScoreError, match=r"^scores\[0, 1\] is not a number \(NaN\); check what"):
        refuse_where(torch.tensor([[False, True], [True, True]]), "scores", "not a number (NaN)")
