from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from diptych.errors import ScoreError
from diptych.objectives.extras import NegativeScores, OfflineScores, PairRoles, WithinScores
from diptych.objectives.given_extras import SHAPES, GivenExtras, check_extras, fits

CPU = torch.device("cpu")
SCORES, FLAGS = torch.rand(3), torch.ones(3, dtype=torch.bool)
WITHIN = WithinScores(torch.rand(3, 3), torch.rand(3, 3))
OFFLINE = OfflineScores(SCORES, SCORES, SCORES, SCORES, FLAGS, FLAGS)
NEGATIVES = NegativeScores(texts=torch.rand(3, 7))


@dataclass(frozen=True)
class Own:
    """An extra of a caller's own objective."""

    weights: Tensor
    title: str = ""


def test_extras_that_fit():
    check_extras([WITHIN, OFFLINE, NEGATIVES, PairRoles.all_queries(3, CPU), Own(torch.rand(9)), "anything"], 3, CPU)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            replace(WITHIN, texts=torch.rand(3, 2)),
            r"WithinScores.texts of shape \(3, 2\) for 3 pairs; pass \(pairs, pairs\)",
        ),
        (replace(OFFLINE, both=SCORES[:2]), r"OfflineScores.both of shape \(2,\) for 3 pairs; pass \(pairs,\)"),
        (
            replace(OFFLINE, is_drawn=FLAGS.float()),
            "OfflineScores.is_drawn must be a tensor of torch.bool, not torch.float32",
        ),
        (replace(OFFLINE, is_drawn=[True] * 3), "OfflineScores.is_drawn must be a tensor of torch.bool, not list"),
        (replace(OFFLINE, text=FLAGS), "OfflineScores.text of torch.bool"),
        (
            NegativeScores(images=SCORES),
            r"NegativeScores.images of shape \(3,\) for 3 pairs; pass \(pairs, negatives\)",
        ),
        (NegativeScores(texts=torch.rand(4, 2)), r"NegativeScores.texts of shape \(4, 2\)"),
        (PairRoles.all_queries(4, CPU), r"PairRoles.is_first_image of shape \(4,\)"),
        (Own(torch.rand(3, device="meta")), "Own.weights on meta, the rest of the batch on cpu"),
    ],
)
def test_extras_that_do_not_fit(extra, message):
    with pytest.raises(ScoreError, match=f"^{message}"):
        check_extras([WITHIN, extra], 3, CPU)


def test_extras_are_a_list():
    with pytest.raises(ScoreError, match=r"^extras must be a list, such as \[OfflineScores\(\.\.\.\)\]$"):
        check_extras(OFFLINE, 3, CPU)


def test_one_that_was_not_passed():
    extras = GivenExtras("Quintuplet", [WITHIN])
    assert extras[WithinScores] is WITHIN
    assert extras.get(OfflineScores) is None
    with pytest.raises(
        ScoreError, match=r"^Quintuplet needs more than scores; pass extras=\[OfflineScores\(\.\.\.\)\]$"
    ):
        _ = extras[OfflineScores]


def test_half_precision_is_converted():
    half = replace(OFFLINE, text=SCORES.half(), image=SCORES.bfloat16(), both=SCORES.double())
    found = GivenExtras("Quintuplet", [half])[OfflineScores]
    kinds = [getattr(found, name).dtype for name in ("text", "image", "both", "derived", "is_drawn")]
    assert kinds == [torch.float32, torch.float32, torch.float64, torch.float32, torch.bool]
    assert GivenExtras("MVN", [WITHIN])[WithinScores] is WITHIN


def test_every_known_extra_is_checked():
    assert set(SHAPES) == {WithinScores, OfflineScores, NegativeScores, PairRoles}


def test_an_extra_is_not_a_class():
    with pytest.raises(ScoreError, match=r"^extras has the class Own; pass an object of it, Own\(\.\.\.\)$"):
        check_extras([WITHIN, Own], 3, CPU)


def values():
    """Right and wrong values of a field: types, shapes, devices, and none at all."""
    shapes = ((3,), (4,), (3, 3), (3, 7), (4, 3), (3, 3, 3))
    for shape in shapes:
        yield from (
            torch.rand(shape),
            torch.rand(shape) > 0.5,
            torch.rand(shape).half(),
            torch.rand(shape, device="meta"),
        )
    yield from (torch.arange(3), [True] * 3, None)


@pytest.mark.parametrize(
    "extra", [WITHIN, OFFLINE, NEGATIVES, PairRoles.all_queries(3, CPU)], ids=lambda e: type(e).__name__
)
def test_the_quick_test_of_extras_agrees_with_the_checks_that_explain(extra, monkeypatch):
    monkeypatch.setattr("diptych.objectives.given_extras.fits", lambda *_: False)  # explain everything
    outcomes = set()
    for field in extra.__dataclass_fields__:
        for value in values():
            changed = replace(extra, **{field: value})
            try:
                check_extras([changed], 3, CPU)
                explained = True
            except ScoreError:
                explained = False
            assert fits(changed, 3, CPU) == explained, (field, value)
            outcomes.add(explained)
    assert outcomes == {True, False}
