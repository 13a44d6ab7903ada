"""The correlation that canonical correlation analysis maximises, solved for in one pass over the data.

Reference: see `diptych.models.matchers.cca`.
Needs: the model `cca`, which accumulates each training pair once and solves for its projections at the end.
When to use it: as the objective of the only stage of a `cca` recipe.
Relation to others: all other objectives follow gradients; this one has no loss for a batch.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from diptych.errors import RecipeError
from diptych.objectives.objective import Loss, Objective, ScoredPairs, ScoreSummary


class Correlation(Objective):
    """The correlation of the two sides over the whole training set; see the module docstring."""

    name: Literal["correlation"] = "correlation"
    closed_form: ClassVar[bool] = True

    def loss(self, batch: ScoredPairs) -> Loss:
        """Not supported: a batch has no such loss."""
        raise RecipeError(
            "objective 'correlation' is solved over all training pairs and has no loss per batch; "
            "use it with model 'cca', or choose another objective"
        )

    def has_collapsed(self, batch: ScoreSummary, total: float) -> bool:
        """Never: no gradient is followed."""
        return False
