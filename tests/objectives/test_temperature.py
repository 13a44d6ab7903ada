"""The temperature that several objectives share: exact differences, its bounds, and learning it."""

import math
from typing import Literal

import pytest
import torch

from diptych.errors import RecipeError
from diptych.objectives.objective import ObjectiveContext, ScoredPairs
from diptych.objectives.ranking import Queries
from diptych.objectives.temperature import MIN_LEARNED_TEMPERATURE, MIN_TEMPERATURE, Tempered

SCORES = torch.tensor([[0.5, 0.25, 0.125], [0.75, 0.5, 1.0], [0.0, 0.25, 0.5]])
POSITIVES = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
QUERIES = Queries(SCORES, torch.arange(3), POSITIVES)


class Simple(Tempered):
    name: Literal["simple"] = "simple"

    def per_query_loss(self, queries):
        return self.candidate_logits(queries).exp().sum(1)


def test_logits_are_differences_from_the_positive_divided_by_the_temperature():
    logits = Simple(temperature=0.5).relative_logits(QUERIES, SCORES)
    expected = [[(score - row[place]) / 0.5 for score in row] for place, row in enumerate(SCORES.tolist())]
    assert logits.tolist() == expected
    assert torch.equal(SCORES[0], torch.tensor([0.5, 0.25, 0.125])), "the scores themselves must not change"


def test_other_positives_of_a_query_are_not_its_negatives():
    logits = Simple(temperature=1.0).candidate_logits(QUERIES)
    assert logits.diagonal().tolist() == [0.0, 0.0, 0.0]
    assert logits[0, 1] == logits[1, 0] == -torch.inf
    assert logits.isfinite().sum() == 7


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_half_precision_does_not_overflow(dtype):
    scores = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=dtype)
    queries = Queries(scores, torch.arange(2), torch.eye(2, dtype=torch.bool))
    logits = Simple(temperature=MIN_TEMPERATURE).relative_logits(queries, scores)
    assert logits.isfinite().all()
    assert logits[0, 1].item() == pytest.approx(2 / MIN_TEMPERATURE)


def test_a_learned_temperature_begins_at_the_given_one_and_gives_the_same_loss():
    fixed, learned = Simple(temperature=0.2), Simple(temperature=0.2, learn_temperature=True)
    assert fixed.initial_parameters(ObjectiveContext()) == {}
    parameters = learned.initial_parameters(ObjectiveContext())
    assert parameters["log_temperature"].item() == pytest.approx(math.log(0.2))
    losses = [
        objective.loss(ScoredPairs(SCORES, POSITIVES, parameters=values)).total.item()
        for objective, values in ((fixed, {}), (learned, parameters))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(("start", "lowest"), [(0.2, MIN_LEARNED_TEMPERATURE), (0.005, 0.005)])
def test_a_learned_temperature_has_a_bound_at_which_it_keeps_its_gradient(start, lowest):
    objective = Simple(temperature=start, learn_temperature=True)
    below = torch.tensor(math.log(lowest) - 1, requires_grad=True)
    queries = Queries(SCORES, torch.arange(3), POSITIVES, parameters={"log_temperature": below})
    logits = objective.relative_logits(queries, SCORES)
    assert logits[1, 2].item() == pytest.approx(0.5 / lowest, rel=1e-4)
    logits[1, 2].backward()
    assert below.grad.item() == pytest.approx(-0.5 / lowest, rel=1e-4)


def test_too_low_a_temperature_is_refused():
    with pytest.raises(RecipeError, match="temperature"):
        Simple(temperature=MIN_TEMPERATURE / 2)


def test_equal_scores_are_no_collapse():
    objective = Simple()
    batch = ScoredPairs(torch.ones(3, 3), POSITIVES)
    assert not objective.has_collapsed(objective.summary(batch), objective.loss(batch).total.item())
