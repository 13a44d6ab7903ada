"""What all objectives share: named terms and their sum, the summary of scores, the defaults, and the public call."""

from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from diptych.data.sampling.extras import Extras
from diptych.errors import RecipeError, ScoreError
from diptych.objectives import MVN, Contrastive, Hinge, Logistic, Neighbourhood, OfflineScores, Quintuplet, WithinScores
from diptych.objectives.correlation import Correlation
from diptych.objectives.objective import Loss, Objective, ObjectiveContext, ScoredPairs, ScoreSummary

SCORES = torch.tensor([[0.5, -0.25], [0.125, 1.0]], requires_grad=True)
POSITIVES = torch.tensor([[True, False], [True, True]])


class Squares(Objective):
    name: Literal["squares"] = "squares"

    def loss(self, batch):
        return Loss({"all": batch.scores.square().sum()})

    def has_collapsed(self, batch, total):
        return total == 0


def test_the_total_is_the_sum_of_the_terms_of_objective_and_model():
    loss = Loss(
        {"one": torch.tensor(1.0), "two": torch.tensor(2.0)},
        model_terms={"caption": torch.tensor(4.0)},
        error_rates={"one": torch.tensor(100.0)},  # reported, not minimised
    )
    assert loss.total.item() == 7
    assert Loss({"one": torch.tensor(1.0)}).total.item() == 1


def test_a_summary_holds_the_range_of_the_scores_and_the_positives_of_each_image():
    summary = Squares().summary(ScoredPairs(SCORES, POSITIVES))
    assert (summary.lowest, summary.highest) == (-0.25, 1.0)
    assert summary.positive_counts.tolist() == [1, 2]


def test_missing_scores_are_not_the_lowest():
    scores = torch.tensor([[0.5, -torch.inf], [0.25, 1.0]])
    assert ScoreSummary.of(scores, POSITIVES).lowest == 0.25


def test_an_objective_needs_nothing_unless_it_says_so():
    objective = Squares()
    assert objective.needs == ()
    assert objective.need_options("classes") is None
    assert objective.initial_parameters(ObjectiveContext(8, {"classes": 3})) == {}
    assert objective.scores_all_pairs
    assert not objective.supports_chunks
    assert not objective.closed_form
    assert objective.collapse_hint == "lower optimiser.rate"


def test_an_objective_without_support_for_chunks_refuses_them():
    with pytest.raises(NotImplementedError, match=":Squares' needs all scores of a batch at once"):
        Squares().chunked_loss(None, [], lambda loss: loss)


# The public call: each objective with everything that any of them reads, so that all can be called alike.
PAIRS, GROUPS = 12, torch.arange(12) // 3
SAME_GROUP = GROUPS[:, None] == GROUPS
OBJECTIVES = {
    "hinge max": Hinge(),
    "hinge sum": Hinge(negatives="sum"),
    "hinge soft": Hinge(negatives=0.5),
    "hinge next": Hinge(negatives="next"),
    "contrastive": Contrastive(),
    "contrastive max": Contrastive(negatives="max", margin=0.2),
    "mvn": MVN(),
    "quintuplet": Quintuplet(),
    "neighbourhood": Neighbourhood(image_to_image=0.1, text_to_text=0.2, most=3),
    "logistic": Logistic(),
}


def leaves(seed=0):
    """Embeddings of images and texts, and the scores of offline negatives."""
    generator = torch.Generator().manual_seed(seed)
    sides = [torch.randn(PAIRS, 5, generator=generator).requires_grad_() for _ in range(2)]
    return [*sides, *(torch.randn(PAIRS, generator=generator).requires_grad_() for _ in range(4))]


def offline(scores):
    flags = torch.arange(PAIRS) % 4 > 0
    return OfflineScores(*scores, flags, flags)


def gradients(loss, inputs):
    return torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_call_is_the_loss_of_the_scored_batch(name):
    objective, inputs = OBJECTIVES[name], leaves()
    units = [normalize(side, dim=1) for side in inputs[:2]]
    within = WithinScores(units[0] @ units[0].t(), units[1] @ units[1].t())
    batch = ScoredPairs(units[0] @ units[1].t(), SAME_GROUP, Extras(within, offline(inputs[2:])))
    expected = objective.loss(batch)
    slow = gradients(expected.total, inputs)
    extras = [offline(inputs[2:])]
    calls = [
        objective(images=inputs[0], texts=inputs[1], groups=GROUPS, extras=extras),
        objective(units[0] @ units[1].t(), positives=SAME_GROUP, extras=[*extras, within]),
    ]
    for loss in calls:
        torch.testing.assert_close(loss.detach(), expected.total.detach())
        assert list(loss.terms) == list(expected.terms)
        torch.testing.assert_close(sum(loss.terms.values()), expected.total)
    torch.testing.assert_close(gradients(calls[0], inputs), slow)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_within_autocast_losses_have_single_precision(name):
    """A smooth loss of bfloat16 scores is close; hinges may choose another negative, but must not lose digits."""
    objective, inputs = OBJECTIVES[name], leaves()
    extras = [offline([scores.bfloat16() for scores in inputs[2:]])]
    with torch.autocast("cpu", torch.bfloat16):
        loss = objective(images=inputs[0], texts=inputs[1], groups=GROUPS, extras=extras)
        scores = normalize(inputs[0], dim=1) @ normalize(inputs[1], dim=1).t()
    assert scores.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    assert {term.dtype for term in loss.terms.values()} == {torch.float32}
    loss.backward()
    assert all(side.grad.isfinite().all() for side in inputs[:2])
    exact = objective(images=inputs[0], texts=inputs[1], groups=GROUPS, extras=extras)
    torch.testing.assert_close(loss.detach(), exact.detach(), rtol=0.03, atol=0.03)


# Two select by value, which a device without values cannot do.
@pytest.mark.parametrize("name", sorted(OBJECTIVES.keys() - {"logistic", "neighbourhood"}))
def test_calls_on_another_device(name):
    inputs = [each.detach().to("meta") for each in leaves()]
    flags = torch.ones(PAIRS, dtype=torch.bool, device="meta")
    extras = [OfflineScores(*inputs[2:], flags, flags)]
    assert OBJECTIVES[name](images=inputs[0], texts=inputs[1], groups=GROUPS, extras=extras).device.type == "meta"


def test_without_a_gradient_nothing_is_kept():
    with torch.no_grad():
        assert not Hinge()(images=leaves()[0], texts=leaves()[1]).requires_grad
    assert Hinge()(torch.eye(3)).item() == 0


@dataclass(frozen=True)
class Weights:
    """The extra of a caller's own objective."""

    of_pairs: Tensor


class Weighted(Objective):
    name: Literal["weighted"] = "weighted"

    def loss(self, batch):
        weights = batch.extras[Weights].of_pairs * batch.parameters["scale"]
        bias = batch.parameters.get("bias")
        return Loss({"all": (weights * batch.scores.diagonal()).sum() + (0 if bias is None else bias)})

    def has_collapsed(self, batch, total):
        return False

    def initial_parameters(self, context):
        return {"scale": torch.full((context.sizes["weights"],), 2.0)}


def test_own_objectives_can_be_called_too():
    scores, weights = torch.tensor([[0.5, 0.0], [0.0, 1.0]]), Weights(torch.tensor([1.0, 3.0]))
    module = Weighted().as_module(weights=2)
    assert module(scores, extras=[weights]).item() == 2 * (0.5 + 3.0)
    with pytest.raises(ScoreError, match=r"^Weighted needs more than scores; pass extras=\[Weights\(\.\.\.\)\]$"):
        module(scores)
    with pytest.raises(ScoreError, match=r"^Weighted has a parameter to train, 'scale'; call as_module\(\) once"):
        Weighted()(scores, extras=[weights])
    with pytest.raises(ScoreError, match=r"^Weighted needs a size: as_module\(weights=\.\.\.\)$"):
        Weighted().as_module()
    for size in (0, -1, 2.0, None):
        with pytest.raises(ScoreError, match=r"^Weighted.as_module\(weights=.*\): pass an integer of 1 or more$"):
            Weighted().as_module(weights=size)


def test_parameters_of_no_module():
    with pytest.raises(ScoreError, match=r"^Contrastive has a parameter to train, 'log_temperature'; call as_module"):
        Contrastive(learn_temperature=True)(torch.eye(3))


def test_what_has_no_loss_per_batch_says_so():
    with pytest.raises(RecipeError, match="no loss per batch"):
        Correlation()(torch.eye(3))
