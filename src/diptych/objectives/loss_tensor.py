"""The loss that calling an objective returns: a tensor to call `backward` on, with its terms beside it."""

from __future__ import annotations

import torch
from torch import Tensor


class LossTensor(Tensor):
    """A loss of one number, with the named `terms` that it is the sum of.

    The terms are differentiable, too, so a caller can weight them differently. `error_rates`, if any, are shares of
    misclassified pairs, which are reported and not minimised. Whatever is computed from the loss is a plain tensor.

    Examples:
        >>> loss = LossTensor.of(torch.tensor(3.0), {"one": torch.tensor(1.0), "two": torch.tensor(2.0)})
        >>> loss.item(), sorted(loss.terms), type(loss / 2).__name__
        (3.0, ['one', 'two'], 'Tensor')
        >>> f"{loss:.3f}"
        '3.000'
    """

    terms: dict[str, Tensor]
    error_rates: dict[str, Tensor]

    # As torch.nn.Parameter does: functions treat it as the tensor that it is.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __format__(self, format_spec: str) -> str:
        """As for a plain tensor of one number, which torch does for no subclass."""
        return format(self.detach().as_subclass(Tensor), format_spec)

    @classmethod
    def of(cls, total: Tensor, terms: dict[str, Tensor], error_rates: dict[str, Tensor] | None = None) -> LossTensor:
        """The same number as `total`, in the same graph."""
        loss: LossTensor = total.as_subclass(cls)
        loss.terms, loss.error_rates = terms, error_rates or {}
        return loss
