"""`diptych watch`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import counted, print_error, print_note, print_result
from diptych.cli.options import AllowCode, Device, Download, Index, Workers
from diptych.cli.places import index_of

if TYPE_CHECKING:
    from diptych.index.sync import SyncResult


def command(
    target: Index,
    poll: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Compare at intervals, for folders whose changes the system does not report, as on a network.",
            show_default="30 without watchfiles",
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="The model that made the index, if it has moved.")
    ] = None,
    workers: Workers = None,
    device: Device = "auto",
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Keep an index current: whenever photos are added, changed or removed, update it, with one line per update.

    A folder that vanishes, such as that of a disk, is waited for. A running `diptych serve` shows the changes without
    a restart. Ctrl-C ends it. `pip install 'diptych[watch]'` replaces comparing at intervals by notifications.

    Examples:

        diptych watch Pictures.diptych

        diptych watch ~/Pictures

        diptych watch nas.diptych --poll 300
    """
    from diptych.index.search import model_of, open_store
    from diptych.index.sources.resolve import SourceRequest
    from diptych.index.sync import SyncOptions, sync_sources
    from diptych.index.watch import POLL_SECONDS, Watch, can_notify
    from diptych.machine import interrupt_event, keep_freed_memory

    keep_freed_memory()
    index = index_of(target)
    store = open_store(index)
    model = model_of(store, run, device)
    spec = store.spec
    how = "by notifications" if poll is None and can_notify(spec) else f"every {poll or POLL_SECONDS:g} s"
    print_note(f"watching {spec.source} for {index}, {how}; Ctrl-C ends it")
    with interrupt_event() as stop:
        options = SyncOptions(workers, stop=stop)
        watch = Watch(
            lambda: store.spec,
            index,
            lambda: sync_sources(model, SourceRequest(), index, options=options),
            UpdateReports(),
            poll,
        )
        try:
            watch.run(stop)
        finally:
            store.close()
    print_note("ended")


class UpdateReports:
    """Prints one line about each update that changed something or that ends an error, and one about each new error."""

    def __init__(self) -> None:
        self._error: str | None = None

    def __call__(self, result: SyncResult | str) -> None:
        """Report the result of an update, or an error."""
        if isinstance(result, str):
            if result != self._error:
                print_error(result)
            self._error = result
            return
        done = _describe(result)
        if done or self._error is not None:
            images = counted(result.files.indexed, "image")
            print_result(f"{datetime.now():%H:%M:%S} {done or 'up to date again'}; {images}")
        self._error = None


def _describe(result: SyncResult) -> str:
    """What an update has changed; empty if nothing."""
    done = [f"encoded {result.encoded:,}", f"renamed {result.renamed:,}", f"removed {result.removed:,}"]
    is_changed = result.encoded or result.renamed or result.removed
    more = []
    if result.copies:
        more.append(counted(result.copies, "copy", "copies"))
    if result.texts_encoded:
        more.append(counted(result.texts_encoded, "new text"))
    if result.words_read:
        more.append(f"words read in {counted(result.words_read, 'picture')}")
    if result.failed:
        more.append(f"{result.failed:,} unreadable")
    return ", ".join([*done, *more]) if is_changed or more else ""
