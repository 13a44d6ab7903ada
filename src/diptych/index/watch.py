"""Keeps an index current: compares it with its source whenever something changes, by notifications or at intervals."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from diptych.data.file_kinds import INDEXED_SUFFIXES
from diptych.errors import DiptychError
from diptych.index.sources.selection import Selection
from diptych.index.spec import IndexSpec
from diptych.index.sync import SyncResult

POLL_SECONDS = 30.0  # where there are no notifications

_WAKE_SECONDS = 0.5  # between looks at whether a folder has vanished or come back
_QUIET_SECONDS = 1.0  # without a change, after which a burst of changes is over
_LONGEST_BURST_SECONDS = 10.0
_RETRY_SECONDS = 5.0  # after an error
_LONGEST_PAUSE_SECONDS = 30.0  # between two updates while changes go on


class Watch:
    """Calls `update` at first and after every change, and `report` with each result, or with an error as text.

    An error ends nothing: a folder that vanishes is waited for, and an index that another process is writing to is
    tried again; the same error is reported once. Notifications are collected while `update` runs, so that it runs again
    for a change that it has missed. Without notifications (see `can_notify`), it runs every `poll` seconds.
    """

    def __init__(
        self,
        spec: Callable[[], IndexSpec],
        index: str,
        update: Callable[[], SyncResult],
        report: Callable[[SyncResult | str], None],
        poll: float | None = None,
    ) -> None:
        self._spec, self._index, self._update, self._report = spec, os.path.abspath(index), update, report  # noqa: PTH100
        self._poll = poll
        self._error: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Keep the index current until the event is set."""
        while not stop.is_set():
            spec = self._spec()
            poll = self._poll or (None if can_notify(spec) else POLL_SECONDS)
            wakes = _intervals(poll, stop) if poll else _notifications(spec, self._index, stop)
            for changed in wakes:
                if changed or self._is_retry_due():
                    self._run_update(stop)

    def _run_update(self, stop: threading.Event) -> None:
        begin = time.monotonic()
        try:
            result = self._update()
        except DiptychError as reason:
            if str(reason) != self._error:
                self._report(str(reason))
            self._error = str(reason)
        else:
            self._error = None
            if not result.interrupted:
                self._report(result)
        self._ended = time.monotonic()
        stop.wait(min(2 * (self._ended - begin), _LONGEST_PAUSE_SECONDS))  # no more than a third of the time is work

    def _is_retry_due(self) -> bool:
        return self._error is not None and time.monotonic() - self._ended > _RETRY_SECONDS


def can_notify(spec: IndexSpec) -> bool:
    """Whether the system reports changes: `watchfiles` is installed, and folders are watched, without their links."""
    is_folders = bool(spec.folders) or (spec.root is not None and spec.source == spec.root)
    return is_folders and not spec.selection.follow_links and find_spec("watchfiles") is not None


def is_relevant(path: str, roots: Sequence[str], selection: Selection, index: str) -> bool:
    """Whether a change at a path may change an index; the files of the index itself, which may be there, do not."""
    suffix = Path(path).suffix.lower()
    is_indexed = suffix in INDEXED_SUFFIXES or suffix == ".txt"
    if not is_indexed and (path.startswith(index) or Path(path).name.startswith(f".{Path(index).name}")):
        return False
    for root in roots:
        if path.startswith(f"{root}{os.sep}"):
            if selection.leaves_out(path[len(root) + 1 :].replace(os.sep, "/")):
                return False
            return is_indexed or not Path(path).is_file()
    return path in roots


def _intervals(seconds: float, stop: threading.Event) -> Iterator[bool]:
    """True at once, and then at intervals."""
    while not stop.is_set():
        yield True
        stop.wait(seconds)


def _notifications(spec: IndexSpec, index: str, stop: threading.Event) -> Iterator[bool]:
    """True at once, which is after the watch has begun, and after every change; in between, False from time to time.

    It ends when one of the folders vanishes, comes back or is replaced, because that needs another watch.
    """
    identities = _identities(spec.roots)
    present = [root for root in spec.roots if identities[root] is not None]
    changes = _changes(present, spec, index, stop) if present else _intervals_without_change(stop)
    for number, changed in enumerate(changes):
        yield number == 0 or changed
        if _identities(spec.roots) != identities:
            return


def _changes(roots: list[str], spec: IndexSpec, index: str, stop: threading.Event) -> Iterator[bool]:
    from watchfiles import watch

    for found in watch(
        *roots,
        watch_filter=lambda _, path: is_relevant(path, spec.roots, spec.selection, index),
        debounce=int(_LONGEST_BURST_SECONDS * 1000),
        step=int(_QUIET_SECONDS * 1000),
        stop_event=stop,
        rust_timeout=int(_WAKE_SECONDS * 1000),
        yield_on_timeout=True,
        ignore_permission_denied=True,
    ):
        yield bool(found)


def _intervals_without_change(stop: threading.Event) -> Iterator[bool]:
    while not stop.is_set():
        yield False
        stop.wait(_WAKE_SECONDS)


def _identities(roots: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    return {root: _identity(root) for root in roots}


def _identity(root: str) -> tuple[int, int] | None:
    try:
        status = os.stat(root)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
