"""`diptych open`."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import print_note, print_result, progress_bar
from diptych.cli.index_options import FollowLinks, Ignore, ImageQuality, NoIgnore, Ocr, source_request
from diptych.cli.index_summary import describe_files, print_needed_packages
from diptych.cli.options import AllowCode, Device, Download, Workers
from diptych.cli.places import default_index
from diptych.cli.watch import UpdateReports
from diptych.errors import DiptychError

if TYPE_CHECKING:
    import socket

    from diptych.features.choices import Quality
    from diptych.index.sources.resolve import SourceRequest
    from diptych.index.sync import SyncOptions, SyncResult
    from diptych.model import Model

_PORT = 8000  # unless it is in use


def command(
    targets: Annotated[
        list[str], typer.Argument(metavar="FOLDER|INDEX", help="Folders of photos, a corpus, or an existing index.")
    ],
    into: Annotated[
        str | None, typer.Option(metavar="FILE", help="The index.", show_default="in the user's data folder")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="The model: a run, an export or a pair.", show_default="that of the index, or starter"
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port.", show_default="8000, or any free one")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    ignore: Ignore = None,
    no_ignore: NoIgnore = False,
    follow_links: FollowLinks = None,
    quality: ImageQuality = None,
    ocr: Ocr = None,
    workers: Workers = None,
    device: Device = "auto",
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Search photos in the browser: index the folder, or update its index, and show the page.

    The page opens as soon as the first photos are ready, while indexing goes on; the next time, at once. While it runs,
    it follows changes of the folder, if the system tells about them (`pip install 'diptych[watch]'`). If it already
    runs for this folder, only the browser is opened. Ctrl-C ends it; what is indexed is kept.

    Examples:

        diptych open ~/Pictures

        diptych open ~/Pictures /media/card/DCIM

        diptych open ~/Pictures --ocr --ignore private/

        diptych open Pictures.diptych --no-browser --port 0
    """
    from diptych.serve.running import running_service

    is_index = len(targets) == 1 and Path(targets[0]).is_file() and Path(targets[0]).suffix == ".diptych"
    index = str(into or (targets[0] if is_index else default_index(targets)))
    if url := running_service(index):
        print_result(f"already running at {url}")
        options_given = (ignore, no_ignore or None, follow_links, quality, ocr, run, port)
        if len(targets) > 1 or any(option is not None for option in options_given):
            print_note("it goes on unchanged; to add folders or to change options, end it (Ctrl-C) and run this again")
        _show(url, browser)
        return
    from diptych.index.sync import SyncOptions  # takes as long as all that a service that runs already needs
    from diptych.machine import keep_freed_memory

    keep_freed_memory()
    print_note(f"index: {index}")
    request = source_request(() if is_index else targets, ignore, no_ignore, follow_links)
    options = SyncOptions(workers, quality=quality, ocr=ocr)
    _serve(index, request, options, _model(index, run, device, quality), port, browser=browser)


def _model(index: str, run: str | None, device: str, quality: Quality | None) -> Model:
    """The model of an index, or the one that it is to be made with."""
    from diptych.index.search import model_of, open_store
    from diptych.model import Model

    if not Path(index).exists():
        return Model.load(run or "starter", device, quality=quality or "fast")
    store = open_store(index)
    try:
        return model_of(store, run, device)
    finally:
        store.close()


def _serve(
    index: str, request: SourceRequest, options: SyncOptions, model: Model, port: int | None, *, browser: bool
) -> None:
    from diptych.index.backend import locate
    from diptych.index.search import Searcher, open_store
    from diptych.serve.app import create_app
    from diptych.serve.running import noted_service
    from diptych.serve.startup import make_server, url_of, warm_up

    updates = _Updates(model, request, index, options)
    updates.start()
    try:
        updates.wait_for_images()
        with _listen(port) as listening, closing(open_store(index)) as store:
            name = Path(str(request.sources[0]) if request.sources else index).stem
            searchers = {name: Searcher(store, model)}
            warm_up(searchers)
            app, url = create_app(searchers), url_of(listening)
            with noted_service(index, app, url):
                print_result(f"searching {', '.join(searchers)} at {url}")
                _show(url, browser)
                make_server(app).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        updates.end()
        with suppress(DiptychError):  # a writer that has the index for itself leaves no log beside it
            locate(index).open(write=True).close()
    print_note("ended")


class _Updates:
    """Brings an index up to date in the background, and then follows the changes of its source."""

    def __init__(self, model: Model, request: SourceRequest, index: str, options: SyncOptions) -> None:
        self._model, self._request, self._index, self._options = model, request, index, options
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._report = UpdateReports()
        self._thread = threading.Thread(target=self._run, name="updates", daemon=True)

    def start(self) -> None:
        """Begin to update."""
        self._thread.start()

    def wait_for_images(self) -> None:
        """Wait until the index has images; raises what has prevented it."""
        while not self._ready.wait(0.1):
            if self._has_images():
                return
        if self._failure is not None and not self._has_images():
            raise self._failure

    def end(self) -> None:
        """Stop after the present transaction."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        from diptych.index.search import open_store
        from diptych.index.watch import Watch, can_notify

        try:
            result = self._update(self._request, self._options)
            self._report(result)
            print_note(describe_files(result.files, f"`diptych index status {quote(self._index)}` lists them"))
            print_needed_packages(result)
        except BaseException as reason:
            self._failure = reason
            if self._has_images():  # it is served as it is
                self._report(str(reason))
        self._ready.set()
        if self._has_images() and not self._stop.is_set():
            store = open_store(self._index)
            try:
                if can_notify(store.spec):
                    Watch(lambda: store.spec, self._index, self._update, self._report).run(self._stop)
            finally:
                store.close()

    def _update(self, request: SourceRequest | None = None, options: SyncOptions | None = None) -> SyncResult:
        from diptych.index.sources.resolve import SourceRequest
        from diptych.index.sync import SyncOptions, sync_sources

        with progress_bar("indexing", "photos") as progress:
            options = replace(options or SyncOptions(self._options.workers), progress=progress, stop=self._stop)
            return sync_sources(self._model, request or SourceRequest(), self._index, options=options)

    def _has_images(self) -> bool:
        from diptych.index.search import open_store

        if not Path(self._index).exists():
            return False
        try:
            store = open_store(self._index)
        except DiptychError:
            return False
        try:
            return store.counts()["image"] > 0
        finally:
            store.close()


def _listen(port: int | None) -> socket.socket:
    """A listening socket: at the port that is asked for, or else at the usual one, or any free one."""
    from diptych.serve.startup import listen

    try:
        return listen("127.0.0.1", _PORT if port is None else port)
    except DiptychError:
        if port is not None:
            raise
        return listen("127.0.0.1", 0)


def _show(url: str, browser: bool) -> None:
    """Open a page in the browser, if there is a display; its address has been printed."""
    if browser and has_display(sys.platform, os.environ):
        webbrowser.open(url)


def has_display(platform: str, environment: Mapping[str, str]) -> bool:
    """Whether a browser can be opened; on a terminal alone, Python would start a text browser in it."""
    return platform in ("darwin", "win32") or any(name in environment for name in ("DISPLAY", "WAYLAND_DISPLAY"))
