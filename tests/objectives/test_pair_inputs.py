"""What callers pass to objectives: every way to say the same gives the same, and what cannot be used is named."""

from typing import Literal

import numpy as np
import pytest
import torch

from diptych.errors import ScoreError
from diptych.objectives.extras import ClassifierInputs, WithinScores
from diptych.objectives.hinge import Hinge
from diptych.objectives.instance import Instance
from diptych.objectives.logistic import Logistic
from diptych.objectives.mvn import MVN
from diptych.objectives.objective import Loss, Objective
from diptych.objectives.pair_inputs import PairInputs

SCORES = torch.tensor([[0.5, 0.25, -1.0], [0.0, 1.0, 0.75], [0.125, -0.5, 0.25]])
IMAGES, TEXTS = torch.randn(3, 4), torch.randn(3, 4)
GROUPS = [7, 3, 7]
SAME = torch.tensor([[True, False, True], [False, True, False], [True, False, True]])
NOT_A_NUMBER, INFINITE = SCORES.clone().index_fill_(1, torch.tensor(2), torch.nan), SCORES / 0


def test_scores_and_positives():
    for inputs in (PairInputs(SCORES, GROUPS), PairInputs(SCORES, positives=SAME)):
        scores, positives, extras = inputs.scored(Hinge())
        assert scores is SCORES
        assert torch.equal(positives, SAME)
        assert list(extras) == []
    assert torch.equal(PairInputs(SCORES).scored(Hinge())[1], torch.eye(3, dtype=torch.bool))


def test_scores_of_embeddings():
    scores, positives, _ = PairInputs(images=IMAGES, texts=TEXTS, groups=GROUPS, similarity="dot").scored(Hinge())
    assert torch.equal(scores, IMAGES @ TEXTS.t())
    assert torch.equal(positives, SAME)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_single(dtype):
    half = SCORES.to(dtype).requires_grad_()
    scores, _, _ = PairInputs(half).scored(Hinge())
    assert scores.dtype == torch.float32
    scores.sum().backward()
    assert half.grad.dtype == dtype
    assert PairInputs(SCORES.double()).scored(Hinge())[0].dtype == torch.float64


def test_scores_within_are_derived_from_embeddings_unless_they_are_given():
    inputs = PairInputs(images=IMAGES, texts=TEXTS, similarity="dot")
    within = inputs.scored(MVN())[2][WithinScores]
    assert torch.equal(within.images, IMAGES @ IMAGES.t())
    assert torch.equal(within.texts, TEXTS @ TEXTS.t())
    given = WithinScores(SCORES, SCORES)
    assert inputs._replace(extras=[given]).scored(MVN())[2][WithinScores] is given
    with pytest.raises(ScoreError, match=r"^MVN compares images with images .* pass images= and texts= instead of"):
        PairInputs(SCORES).scored(MVN())


def test_embeddings_are_the_features_of_a_classifier():
    scores, _, extras = PairInputs(images=IMAGES, texts=TEXTS, classes=[1, 0, 1]).scored(Instance())
    inputs = extras[ClassifierInputs]
    assert inputs.images is IMAGES
    assert inputs.texts is TEXTS
    assert (inputs.image_of.tolist(), inputs.text_of.tolist()) == ([0, 1, 2], [0, 1, 2])
    assert inputs.classes.tolist() == [1, 0, 1]
    assert scores.shape == (3, 0)  # nothing reads them
    ranked, _, _ = PairInputs(images=IMAGES, texts=TEXTS, classes=[1, 0, 1]).scored(Instance(rank=1.0))
    assert ranked.shape == (3, 3)


def test_a_pair_may_be_scored_by_itself_if_the_objective_can_use_it():
    each = SCORES.diagonal()[:, None]
    scores, positives, _ = PairInputs(each, groups=GROUPS).scored(Logistic())
    assert scores is each
    assert positives.tolist() == [[True]] * 3
    with pytest.raises(ScoreError, match=r"^scores of shape \(3, 1\)"):
        PairInputs(each).scored(Hinge())


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "nothing to compute a loss of; pass scores, or images= and texts="),
        ({"scores": SCORES, "images": IMAGES}, "got both scores and embeddings; pass either"),
        ({"scores": SCORES, "images": IMAGES, "texts": TEXTS}, "got both scores and embeddings; pass either"),
        ({"images": IMAGES}, "got embeddings of one side only; pass both images= and texts="),
        ({"texts": TEXTS}, "got embeddings of one side only; pass both images= and texts="),
        ({"images": IMAGES, "texts": TEXTS[:2]}, "images of shape .*; pass one row per pair"),
        ({"scores": SCORES[:2]}, r"scores of shape \(2, 3\); pass \(pairs, pairs\), where row k and column k"),
        ({"scores": SCORES[0]}, r"scores of shape \(3,\); pass \(pairs, pairs\)"),
        ({"scores": SCORES[None]}, r"scores of shape \(1, 3, 3\)"),
        ({"scores": SCORES[:0, :0]}, r"scores of shape \(0, 0\); pass at least one row"),
        ({"scores": SCORES.long()}, "scores of torch.int64; convert to floating point"),
        ({"scores": SCORES.numpy()}, "scores must be a torch tensor, not ndarray"),
        ({"scores": SCORES, "groups": [1, 2]}, r"groups of shape \(2,\); pass \(3,\)"),
        ({"scores": SCORES, "groups": GROUPS, "positives": SAME}, "got both groups and positives; pass one of them"),
        ({"scores": SCORES, "positives": SAME.float()}, "positives must be a tensor of torch.bool, not torch.float32"),
        ({"scores": SCORES, "positives": SAME.long()}, "positives must be a tensor of torch.bool, not torch.int64"),
        ({"scores": SCORES, "positives": SAME.numpy()}, "positives must be a tensor of torch.bool, not ndarray"),
        ({"scores": SCORES, "positives": SAME[:2]}, r"positives of shape \(2, 3\) for 3 pairs"),
        ({"scores": SCORES, "positives": ~SAME}, r"positives\[0, 0\] is False, which leaves pair 0 without"),
        ({"scores": SCORES, "positives": SAME.to("meta")}, "positives on meta, the rest of the batch on cpu"),
        ({"scores": SCORES.to("meta"), "positives": SAME}, "positives on cpu, the rest of the batch on meta"),
        ({"images": IMAGES.to("meta"), "texts": TEXTS}, "texts on cpu, the rest of the batch on meta"),
        ({"scores": SCORES, "classes": [0, 1, 2]}, "Hinge was given classes, which it does not read; leave classes="),
        ({"scores": SCORES, "extras": [WithinScores(SCORES[:2], SCORES)]}, "WithinScores.images of shape"),
        ({"scores": SCORES, "extras": WithinScores(SCORES, SCORES)}, "extras must be a list"),
    ],
)
def test_what_cannot_be_used(inputs, message):
    with pytest.raises(ScoreError, match=f"^{message}") as caught:
        Hinge()(**inputs)
    assert "\n" not in str(caught.value)


def test_the_first_pair_without_its_positive_is_named():
    mask = SAME.clone()
    mask[2, 2] = False
    with pytest.raises(ScoreError, match=r"^positives\[2, 2\] is False, which leaves pair 2 without its positive"):
        PairInputs(SCORES, positives=mask).scored(Hinge())


@pytest.mark.parametrize(
    ("objective", "inputs", "message"),
    [
        (
            Instance(),
            {"images": IMAGES, "texts": TEXTS},
            "Instance classifies embeddings; pass images=, texts= and classes=",
        ),
        (Instance(), {"scores": SCORES, "classes": [0, 1, 2]}, "Instance classifies embeddings; pass images="),
        (
            Instance(sampled=2),
            {"images": IMAGES, "texts": TEXTS, "classes": [0, 1, 2]},
            "Instance: clusters and sampled",
        ),
        (
            Instance(clusters=2),
            {"images": IMAGES, "texts": TEXTS, "classes": [0, 1, 2]},
            "Instance: clusters and sampled",
        ),
        (Instance(), {"images": IMAGES, "texts": TEXTS, "classes": [0, 1]}, r"classes of shape \(2,\); pass \(3,\)"),
    ],
)
def test_classifiers_without_what_they_need(objective, inputs, message):
    with pytest.raises(ScoreError, match=f"^{message}"):
        PairInputs(**inputs).scored(objective)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"scores": NOT_A_NUMBER}, r"scores\[0, 2\] is not a number \(NaN\)"),
        ({"scores": -INFINITE}, r"scores\[1, 0\] is not a number \(NaN\)"),
        ({"scores": SCORES.clone().fill_diagonal_(-torch.inf)}, r"scores\[0, 0\] is infinite"),
        ({"images": IMAGES, "texts": NOT_A_NUMBER}, r"texts\[0, 2\] is not a number"),
        ({"scores": SCORES, "extras": [WithinScores(SCORES, NOT_A_NUMBER)]}, r"WithinScores.texts\[0, 2\] is not"),
    ],
)
def test_a_loss_that_is_not_finite(inputs, message):
    bad = torch.tensor(torch.nan)
    with pytest.raises(ScoreError, match=f"^{message}"):
        PairInputs(**inputs).check_finite(bad)
    PairInputs(**inputs).check_finite(torch.tensor(1.0))  # a finite loss has not read the value
    PairInputs(**inputs).check_finite(bad.to("meta"))  # nobody can look


@pytest.mark.parametrize("objective", [Hinge(), Hinge(negatives="sum"), Hinge(negatives=0.5), Logistic()])
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (2, 0)])
def test_not_a_number_is_found_wherever_it_is(objective, place):
    scores = SCORES.clone()
    scores[place] = torch.nan
    with pytest.raises(ScoreError, match=rf"^scores\[{place[0]}, {place[1]}\] is not a number"):
        objective(scores)


def test_finite_inputs_may_overflow():
    class Overflow(Objective):
        name: Literal["overflow"] = "overflow"

        def loss(self, batch):
            return Loss({"all": batch.scores.sum() * torch.inf})

        def has_collapsed(self, batch, total):
            return False

    assert Overflow()(SCORES.abs()).isinf()


def test_groups_of_numpy_and_strings():
    expected = Hinge()(SCORES, positives=SAME)
    for groups in (GROUPS, np.array(GROUPS), torch.tensor(GROUPS), ["b", "a", "b"]):
        assert torch.equal(Hinge()(SCORES, groups=groups), expected)
