import pytest
import torch

from diptych.errors import RecipeError
from diptych.objectives.correlation import Correlation
from diptych.objectives.objective import Objective, ScoredPairs
from diptych.registry import resolve


def test_a_batch_has_no_such_loss():
    found = resolve("objectives", {"name": "correlation"}, "stage.1.objective", Objective)
    assert isinstance(found, Correlation)
    assert found.closed_form
    batch = ScoredPairs(torch.eye(2), torch.eye(2, dtype=torch.bool))
    assert not found.has_collapsed(found.summary(batch), 0.0)
    with pytest.raises(RecipeError, match=r"solved over all training pairs .* model 'cca'"):
        found.loss(batch)
