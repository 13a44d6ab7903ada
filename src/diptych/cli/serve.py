"""`diptych serve`."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import print_note, print_result
from diptych.cli.options import AllowCode, Device, Download, SearchCodes
from diptych.cli.places import index_of

if TYPE_CHECKING:
    from diptych.index.preselection import Codes
    from diptych.serve.workers import ServiceOptions


def command(
    targets: Annotated[
        list[str], typer.Argument(metavar="INDEX|FOLDER", help="Indexes, or folders that `diptych open` has indexed.")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 listens on all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any free one.")] = 8000,
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="A run or an export of the model that made the indexes, if it has moved."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name that requests may use; repeatable.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that answer requests; they share the vectors in memory.")
    ] = 1,
    codes: SearchCodes = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for computing, per worker.", show_default="cores / workers")
    ] = None,
    device: Device = "auto",
    download: Download = False,
    allowed_code: AllowCode = None,
) -> None:
    """Serve indexes to browsers and programs: a page, and an HTTP API that /openapi.json describes.

    By default only this machine can reach it; --host and --allow-host change that. Ctrl-C ends it.

    Examples:

        diptych serve photos.diptych

        diptych serve photos.diptych scans.diptych --port 0

        diptych serve photos.diptych --workers 4

        diptych serve photos.diptych --run exports/starter
    """
    from diptych.machine import available_cores

    if threads is None and workers > 1:
        threads = max(1, available_cores() // workers)
    if threads is not None:  # must be set before the libraries are imported, below
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
    indexes = [index_of(target) for target in targets]
    hosts = (host, *(allow_host or []))
    if workers > 1:
        from diptych.serve.workers import ServiceOptions

        options = ServiceOptions(tuple(indexes), run, device, codes, hosts, tuple(allowed_code or ()), download)
        _serve_with_workers(options, workers, host, port)
    else:
        _serve(indexes, run, device, codes, hosts, port)


def _serve(indexes: list[str], run: str | None, device: str, codes: Codes, hosts: tuple[str, ...], port: int) -> None:
    from diptych.machine import keep_freed_memory
    from diptych.serve.app import create_app
    from diptych.serve.startup import listen, make_server, open_indexes, url_of, warm_up

    keep_freed_memory()
    with listen(hosts[0], port) as listening:
        searchers = open_indexes(indexes, run, device, codes=codes)
        warm_up(searchers)
        server = make_server(create_app(searchers, hosts))
        notes = dict.fromkeys(note for searcher in searchers.values() for note in searcher.notes())
        _announce(searchers, notes, url_of(listening), hosts[0])
        gc.freeze()
        gc.enable()
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            print_note("ended")


def _serve_with_workers(options: ServiceOptions, workers: int, host: str, port: int) -> None:
    from diptych.machine import interrupt_event
    from diptych.serve.startup import listen, url_of
    from diptych.serve.workers import Ready, serve_with_workers

    gc.enable()
    with listen(host, port) as listening, interrupt_event() as stop:

        def announce(ready: Ready) -> None:
            _announce(ready.names, ready.notes, url_of(listening), host, f" with {workers} workers")

        serve_with_workers(options, workers, listening, stop, on_ready=announce, tell=print_note)
    print_note("ended")


def _announce(names: Iterable[str], notes: Iterable[str], url: str, host: str, how: str = "") -> None:
    """Say what is served, and where."""
    for note in notes:
        print_note(note)
    print_result(f"serving {', '.join(names)}{how} at {url}")
    if host in ("0.0.0.0", "::"):
        print_note("requests under another host name are refused; allow names with --allow-host NAME")
