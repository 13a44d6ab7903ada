"""The loss against the equation, one query at a time."""

import pytest
import torch
from diptych_example.margin_softmax import MarginSoftmax

from diptych.objectives.ranking import Queries

SCORES = torch.tensor([[0.9, 0.2, 0.1], [0.8, 0.3, 0.4], [-0.5, 0.7, 0.6]])
POSITIVES = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 1, 1]], dtype=torch.bool)


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_the_equation(margin):
    objective = MarginSoftmax(margin=margin, temperature=0.5)
    losses = objective.per_query_loss(Queries(SCORES, torch.arange(3), POSITIVES))
    for query, negatives in enumerate([[1, 2], [0], [0]]):
        positive = torch.exp((SCORES[query, query] - margin) / 0.5)
        others = sum(torch.exp(SCORES[query, negative] / 0.5) for negative in negatives)
        torch.testing.assert_close(losses[query], -torch.log(positive / (positive + others)))
