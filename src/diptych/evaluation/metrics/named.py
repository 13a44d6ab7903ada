"""Values that can be read by the name of their metric as attributes: `metrics.i2t_r1`, `intervals.rsum`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

Value_co = TypeVar("Value_co", covariant=True)


class NamedValues(ABC, Generic[Value_co]):
    """Adds an attribute for every metric; a name that was not measured is an AttributeError that lists those that were.

    >>> class Recalls(NamedValues[float]):
    ...     def by_name(self):
    ...         return {"i2t_r1": 40.0, "i2t_r5": 65.0}
    >>> Recalls().i2t_r5
    65.0
    """

    @abstractmethod
    def by_name(self) -> Mapping[str, Value_co]:
        """Every value under the name of its metric."""

    def __getattr__(self, name: str) -> Value_co:
        # underscores are asked for by copy, pickle and notebooks, also of an object that has no fields yet
        if not name.startswith("_"):
            values = self.by_name()
            if name in values:
                return values[name]
            name = f"{name}; it has {', '.join(values)}"
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.by_name()})
