"""Objectives as torch modules: for those with parameters of their own, such as a temperature or a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from diptych.objectives.loss_tensor import LossTensor
from diptych.objectives.pair_inputs import PairInputs

if TYPE_CHECKING:
    from diptych.objectives.objective import Objective


class ObjectiveModule(nn.Module):
    """An objective with its parameters; called like the objective itself.

    The parameters have the objective's names, so that the state of a module has keys such as `log_temperature`.
    """

    def __init__(self, objective: Objective, initial: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.objective = objective
        for name, value in initial.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, scores: Tensor | None = None, **inputs: Any) -> LossTensor:
        """The loss of a batch; the arguments are those of `Objective.__call__`."""
        parameters = {name: value for name, value in self._parameters.items() if value is not None}
        return self.objective.evaluate(PairInputs(scores, **inputs), parameters)

    def extra_repr(self) -> str:
        """The objective and its settings."""
        return repr(self.objective)
