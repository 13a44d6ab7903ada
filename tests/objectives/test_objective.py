"""What all objectives share: named terms and their sum, the summary of scores, and the defaults."""

from typing import Literal

import pytest
import torch

from diptych.objectives.objective import Loss, Objective, ObjectiveContext, ScoredPairs, ScoreSummary

SCORES = torch.tensor([[0.5, -0.25], [0.125, 1.0]], requires_grad=True)
POSITIVES = torch.tensor([[True, False], [True, True]])


class Squares(Objective):
    name: Literal["squares"] = "squares"

    def __call__(self, batch):
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
