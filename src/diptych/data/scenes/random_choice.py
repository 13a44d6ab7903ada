"""Random choices that are the same in every version of Python, which only promises the stream of `Random.random`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Option = TypeVar("Option")


def pick(random: Random, options: Sequence[Option]) -> Option:
    """One of the options, drawn uniformly."""
    return options[int(random.random() * len(options))]


def shuffled(random: Random, options: Sequence[Option]) -> list[Option]:
    """The options in a random order."""
    keys = [random.random() for _ in options]
    return [options[i] for i in sorted(range(len(options)), key=keys.__getitem__)]
