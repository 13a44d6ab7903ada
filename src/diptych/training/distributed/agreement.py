"""What ranks agree on between two steps: which images could not be read, and whether to stop.

Only the first rank has callbacks, and a signal may reach the ranks at different steps. So no rank stops by itself: the
next exchange tells all of them, and they stop after the same step.
"""

from __future__ import annotations

import threading

from diptych.errors import DiptychError, RankError, one_line
from diptych.ranks import ALONE, Ranks
from diptych.training.engine.callbacks import StopTraining

GO_ON, INTERRUPTED, STOPPED, FAILED = range(4)


class Agreement:
    """The exchanges of one training; `asked` is set by a signal, `interrupted` when all ranks know of one."""

    def __init__(self, ranks: Ranks = ALONE, asked: threading.Event | None = None) -> None:
        self.ranks = ranks
        self.asked = asked or threading.Event()
        self.interrupted = self.asked if ranks.count == 1 else threading.Event()
        self._all_know = False  # that the training ends

    def check(self) -> None:
        """Learn whether another rank stops; raises StopTraining, or RankError if it has failed."""
        self.unreadable({})

    def unreadable(self, reasons: dict[int, str]) -> dict[int, str]:
        """The images that any rank could not read, with the reasons; also checks whether another rank stops."""
        if self.ranks.count == 1:
            return reasons
        told = self.ranks.gather_numbers(len(reasons), INTERRUPTED if self.asked.is_set() else GO_ON)
        self._heed([status for _, status in told])
        if not any(count for count, _ in told):
            return {}
        everything = self.ranks.gather_values(list(reasons.items()))
        return dict(sorted((int(image), reason) for part in everything for image, reason in part))

    def leave(self, error: BaseException) -> None:
        """Tell the others that this rank stops because of an error, unless they know or cannot be reached."""
        if self.ranks.count == 1 or self._all_know or isinstance(error, RankError):
            return
        self._all_know = True
        if isinstance(error, StopTraining):
            self.ranks.gather_numbers(0, STOPPED)
        else:
            self.ranks.gather_numbers(0, FAILED)
            self.ranks.gather_values(str(error) if isinstance(error, DiptychError) else one_line(error))

    def _heed(self, statuses: list[int]) -> None:
        worst = max(statuses)
        self._all_know = self._all_know or worst != GO_ON
        if worst == FAILED:
            failed = statuses.index(FAILED)
            raise RankError(f"rank {failed}: {self.ranks.gather_values(None)[failed]}")
        if worst == STOPPED:
            raise StopTraining
        if worst == INTERRUPTED:
            self.interrupted.set()
