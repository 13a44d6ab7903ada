"""How long-running functions report their progress."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[int, int], None]  # called with the number of items done and the total
