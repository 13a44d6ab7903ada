import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.objectives.labels import integers, same_group

CPU, META = torch.device("cpu"), torch.device("meta")
FORMS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "small": lambda groups: np.array(groups, np.int8),
    "unsigned": lambda groups: np.array(groups, np.uint64),
    "objects": lambda groups: np.array(groups, object),
    "numpy objects": lambda groups: np.array([np.int64(group) for group in groups], object),
    "tensor": torch.tensor,
    "short": lambda groups: torch.tensor(groups, dtype=torch.int16),
    "strings": lambda groups: [f"image {group}" for group in groups],
    "string objects": lambda groups: np.array([f"{group}.jpg" for group in groups], object),
}


@pytest.mark.parametrize("form", FORMS)
@given(groups=st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_pairs_of_the_same_group(form, groups):
    same = same_group(FORMS[form](groups), len(groups), CPU)
    assert same.dtype == torch.bool
    assert same.tolist() == [[one == other for other in groups] for one in groups]


def test_without_groups_each_pair_is_one():
    assert torch.equal(same_group(None, 5, CPU), torch.eye(5, dtype=torch.bool))


def test_numbers_beyond_small_integers(monkeypatch):
    groups = [0, 2**40, 2**16, 0, -(2**62)]
    assert same_group(groups, 5, CPU).sum(1).tolist() == [2, 1, 1, 2, 1]
    monkeypatch.setattr("diptych.objectives.labels.SMALL", np.int8)
    many = torch.arange(400) // 2  # more pairs than such integers
    assert torch.equal(same_group(many, 400, CPU), many[:, None] == many)


def test_groups_of_scores_on_another_device():
    for groups in ([1, 2, 1], torch.tensor([1, 2, 1]), torch.tensor([1, 2, 1], device=META), None):
        same = same_group(groups, 3, META)
        assert (same.device, same.shape, same.dtype) == (META, (3, 3), torch.bool)
    with pytest.raises(ScoreError, match=r"^groups on meta, the rest of the batch on cpu; move with \.to\('cpu'\)$"):
        same_group(torch.tensor([1, 2, 1], device=META), 3, CPU)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], r"groups of shape \(2,\); pass \(3,\), one for each row"),
        (torch.zeros(3, 3, dtype=torch.long), r"groups of shape \(3, 3\)"),
        (
            torch.tensor([1.0, 2.0, 3.0]),
            "groups must be integers or strings, one per pair; a mask goes into positives=",
        ),
        (np.array([1.0, 2.0, 3.0]), "groups must be integers"),
        ([True, False, True], "groups must be integers"),
        (torch.tensor([True, False, True]), "groups must be integers"),
        ([None, 1, "a"], "groups must be integers"),
        (np.array([True, 1, "a"], object), "groups must be integers"),
        ([[1, 2], [3]], "groups must be a list, an array or a tensor of one dimension"),
        (7, r"groups of shape \(\)"),
    ],
)
def test_groups_that_cannot_be_used(groups, message):
    with pytest.raises(ScoreError, match=f"^{message}"):
        same_group(groups, 3, CPU)


def test_integers_of_any_form():
    for form in ("list", "tuple", "array", "small", "tensor", "short"):
        found = integers(FORMS[form]([3, 0, 2]), 3, CPU, "classes")
        assert found.dtype == torch.int64
        assert found.tolist() == [3, 0, 2]
    assert integers([3, 0, 2], 3, META, "classes").device == META


@pytest.mark.parametrize("classes", [["a", "b"], [0.5, 1.0], torch.tensor([0.5, 1.0]), torch.tensor([True, False])])
def test_other_classes_than_integers(classes):
    with pytest.raises(ScoreError, match=r"^classes must be integers$"):
        integers(classes, 2, CPU, "classes")


def test_classes_of_another_number_or_device():
    for classes in ([1, 2, 3], torch.tensor([1, 2, 3])):
        with pytest.raises(ScoreError, match=r"^classes of shape \(3,\); pass \(2,\)"):
            integers(classes, 2, CPU, "classes")
    with pytest.raises(ScoreError, match=r"^classes on meta"):
        integers(torch.tensor([1, 2], device=META), 2, CPU, "classes")
