"""`diptych serve`."""

from __future__ import annotations

import gc
import os
from typing import Annotated

import typer

from diptych.cli.console import print_note, print_result
from diptych.cli.options import AllowCode, Device, Download


def command(
    indexes: Annotated[list[str], typer.Argument(metavar="INDEX...", help="Indexes, made by `diptych index`.")],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 listens on all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any free one.")] = 8000,
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="A run or an export of the model that made the indexes, if it has moved."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name that requests may use; repeatable.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads for computing.", show_default="cores")] = None,
    device: Device = "auto",
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Serve indexes to browsers and programs: a page, and an HTTP API that /openapi.json describes.

    By default only this machine can reach it; --host and --allow-host change that. Ctrl-C ends it.

    Examples:

        diptych serve photos.diptych

        diptych serve photos.diptych scans.diptych --port 0

        diptych serve photos.diptych --run exports/starter
    """
    if threads is not None:  # must be set before the libraries are imported, below
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
    from diptych.machine import keep_freed_memory
    from diptych.serve.app import create_app
    from diptych.serve.startup import listen, make_server, open_indexes, url_of, warm_up

    keep_freed_memory()
    with listen(host, port) as listening:
        searchers = open_indexes(indexes, run, device)
        warm_up(searchers)
        server = make_server(create_app(searchers, [host, *(allow_host or [])]))
        for note in dict.fromkeys(note for searcher in searchers.values() for note in searcher.notes()):
            print_note(note)
        print_result(f"serving {', '.join(searchers)} at {url_of(listening)}")
        if host in ("0.0.0.0", "::"):
            print_note("requests under another host name are refused; allow names with --allow-host NAME")
        gc.freeze()
        gc.enable()
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            print_note("ended")
