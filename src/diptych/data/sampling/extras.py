"""What a batch carries beyond its pairs, for the objectives that need it: at most one value of each type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Value = TypeVar("Value")


class Extras:
    """An immutable collection of values, looked up by their type.

    >>> extras = Extras(3, "three")
    >>> extras[str], extras.get(float)
    ('three', None)
    """

    def __init__(self, *values: Any) -> None:
        self._values = {type(value): value for value in values}

    def __getitem__(self, kind: type[Value]) -> Value:
        """The value of this type, which must be there."""
        value: Value = self._values[kind]
        return value

    def get(self, kind: type[Value]) -> Value | None:
        """The value of this type, if any."""
        return self._values.get(kind)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.values())

    def add(self, value: Any) -> Extras:
        """These values and one more, which replaces one of the same type."""
        return Extras(*self, value)

    def map(self, function: Callable[[Any], Any]) -> Extras:
        """The results of a function of each value."""
        return Extras(*map(function, self))


NO_EXTRAS = Extras()
