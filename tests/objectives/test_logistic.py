"""Logistic regression against Eq. 7 in plain numbers, pair by pair."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.sampling.extras import Extras
from diptych.errors import ScoreError
from diptych.objectives.extras import NegativeScores
from diptych.objectives.logistic import Logistic
from diptych.objectives.objective import Objective, ScoredPairs
from diptych.registry import resolve


def cost(label, score):
    """log(1 + exp(-z p)), without overflow."""
    return max(0.0, -label * score) + math.log1p(math.exp(-abs(score)))


def batch(scores):
    """Each row is the score of a pair, then those of its negatives."""
    scores = torch.as_tensor(scores, dtype=torch.float64)
    positives = torch.ones(len(scores), 1, dtype=torch.bool)
    return ScoredPairs(scores[:, :1], positives, Extras(NegativeScores(texts=scores[:, 1:])))


@st.composite
def rows(draw):
    rivals = draw(st.integers(0, 4))
    score = st.floats(-800, 800)
    row = st.tuples(score, *[score | st.just(-math.inf)] * rivals).map(list)
    return draw(st.lists(row, min_size=1, max_size=6))


@given(rows(), st.booleans())
def test_value_equals_the_equation(drawn, balanced):
    loss = Logistic(balanced=balanced).loss(batch(drawn))
    costs = [cost(-1, score) for row in drawn for score in row[1:] if score > -math.inf]
    weight = len(drawn) / len(costs) if balanced and costs else 1
    assert loss.is_mean
    assert loss.terms["positive"].item() == pytest.approx(math.fsum(cost(1, row[0]) for row in drawn) / len(drawn))
    assert loss.terms["negative"].item() == pytest.approx(weight * math.fsum(costs) / len(drawn))


def test_gradients_are_those_of_probabilities_and_none_where_a_rival_lacks():
    scores = torch.tensor([[0.3, -1.0], [900.0, -torch.inf], [-900.0, 900.0]], dtype=torch.float64, requires_grad=True)
    Logistic(balanced=False).loss(batch(scores)).total.backward()
    is_positive = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64)
    wanted = (torch.sigmoid(scores.detach()) - is_positive) / 3
    torch.testing.assert_close(scores.grad, wanted)
    assert scores.grad[1, 1] == 0


def test_balanced_negatives_weigh_as_much_as_positives():
    several = batch([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -math.inf, 0.0]])
    terms = Logistic().loss(several).terms
    assert terms["positive"].item() == pytest.approx(terms["negative"].item()) == pytest.approx(math.log(2))
    terms = Logistic(balanced=False).loss(several).terms
    assert terms["negative"].item() == pytest.approx(math.log(2) * 5 / 2)
    one = batch([[0.4, 0.2], [-0.1, 0.7]])
    assert Logistic().loss(one).total == Logistic(balanced=False).loss(one).total


@given(rows(), st.booleans())
def test_drawn_negatives_of_a_call(drawn, balanced):
    scores = torch.tensor(drawn, dtype=torch.float64)
    negatives = NegativeScores(texts=scores[:, 1:])
    expected = Logistic(balanced=balanced).loss(batch(drawn)).total
    own = Logistic(balanced=balanced)(scores[:, :1], extras=[negatives])
    assert own.item() == expected.item()
    everything = torch.full((len(drawn), len(drawn)), 7.0, dtype=torch.float64).diagonal_scatter(scores[:, 0])
    assert Logistic(balanced=balanced)(everything, extras=[negatives]).item() == expected.item()


@given(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.booleans(), st.integers(0, 99))
def test_all_negatives_of_the_batch_in_a_call(groups, balanced, seed):
    pairs, generator = range(len(groups)), torch.Generator().manual_seed(seed)
    scores = 30 * torch.randn(len(groups), len(groups), generator=generator, dtype=torch.float64)
    missing = torch.rand(scores.shape, generator=generator) < 0.2
    missing &= torch.tensor([[one != other for other in groups] for one in groups])
    scores.masked_fill_(missing, -torch.inf).requires_grad_()
    known = [(i, j, scores[i, j].item()) for i in pairs for j in pairs if scores[i, j] > -torch.inf]
    positives = [cost(1, score) for i, j, score in known if groups[i] == groups[j]]
    negatives = [cost(-1, score) for i, j, score in known if groups[i] != groups[j]]
    loss = Logistic(balanced=balanced)(scores, groups=groups)
    weight = len(positives) / len(negatives) if balanced and negatives else 1
    assert loss.terms["positive"].item() == pytest.approx(math.fsum(positives) / len(groups))
    assert loss.terms["negative"].item() == pytest.approx(weight * math.fsum(negatives) / len(groups))
    loss.backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[missing] == 0).all()


def test_pairs_that_were_scored_by_themselves_need_negatives():
    with pytest.raises(ScoreError, match=r"^Logistic needs more than scores; pass extras=\[NegativeScores"):
        Logistic()(torch.zeros(3, 1))


def test_scores_that_say_nothing_are_a_trap():
    objective = Logistic()
    for scores in ([[0.001, -0.002]] * 4, [[0.001, -0.002]] * 3 + [[0.0, -math.inf]]):
        undecided = batch(scores)
        total = objective.loss(undecided).total.item()
        assert objective.has_collapsed(objective.summary(undecided), total)
        assert not objective.has_collapsed(objective.summary(undecided), 0.9 * total)
    decided = batch([[2.0, -2.0]] * 4)
    assert not objective.has_collapsed(objective.summary(decided), objective.loss(decided).total.item())
    rejecting = batch([[0.0, -9.0]] * 3 + [[0.0, -math.inf]])
    assert not objective.has_collapsed(objective.summary(rejecting), objective.loss(rejecting).total.item())
    assert "optimiser.rate" in objective.collapse_hint


def test_a_recipe_names_it():
    found = resolve("objectives", {"name": "logistic", "balanced": False}, "stage.1.objective", Objective)
    assert isinstance(found, Logistic)
    assert not found.scores_all_pairs
    assert found.needs == ("negatives",)
