"""What canonical correlation analysis maximises, which is solved for in one pass and not descended.

Reference: see `diptych.models.matchers.cca`.
Needs: the model `cca`, which takes in each training pair once and solves for its projections at the end.
When to use it: as the objective of the one stage of a `cca` recipe.
Relation to others: no other objective is solved; a batch has no loss of this one.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from diptych.errors import RecipeError
from diptych.objectives.objective import Loss, Objective, ScoredPairs, Summary


class Correlation(Objective):
    """The correlation of a pair's two sides over the whole training set; see the module's description."""

    name: Literal["correlation"] = "correlation"
    solved: ClassVar[bool] = True

    def __call__(self, batch: ScoredPairs) -> Loss:
        """Refused: a batch has no such loss."""
        raise RecipeError(
            "objective 'correlation' is solved over all training pairs, not descended batch by batch; "
            "use it with model 'cca', and another objective with any other model"
        )

    def stuck(self, batch: Summary, total: float) -> bool:
        """Never: nothing is descended."""
        return False
