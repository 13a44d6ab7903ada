"""What is done before serving: listen on an address, open the indexes, warm up the models, make the server."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from diptych.errors import DiptychError
from diptych.features.choices import Quality
from diptych.index.entries import SearchRequest
from diptych.index.preselection import Codes
from diptych.index.search import Searcher, model_of, open_store
from diptych.index.vector_cache import ABOVE
from diptych.model import Model

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

BACKLOG = 1024
_UNKNOWN_HOST = "--host {}: not an address of this machine; use 127.0.0.1 to serve this machine only"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free port. Errors are one line with the remedy."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        # Accepted connections inherit it. Without it, the second packet of an answer waits 40 ms for a client's delayed
        # acknowledgement of the first; asyncio sets it only for sockets that name their protocol, which this does not.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (socket.gaierror, UnicodeError):
        raise DiptychError(_UNKNOWN_HOST.format(host)) from None
    except OSError as reason:
        raise DiptychError(_describe(host, port, reason)) from None


def url_of(listening: socket.socket) -> str:
    """The URL of the service on a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def open_indexes(
    addresses: Sequence[str | Path],
    run: str | None = None,
    device: str = "auto",
    *,
    map_above: int = ABOVE,
    codes: Codes = "auto",
) -> dict[str, Searcher]:
    """The indexes at some addresses by name, with their models or with the one at `run`; each model is loaded once."""
    stores = [open_store(address) for address in addresses]
    models: dict[tuple[str, Quality], Model] = {}
    searchers: dict[str, Searcher] = {}
    for store in stores:
        made_by = store.spec.identity, store.spec.quality
        if made_by not in models:
            models[made_by] = model_of(store, run, device)
        searcher = Searcher(store, models[made_by], map_above=map_above, codes=codes)
        searchers[_unique_name(store.address, searchers)] = searcher
    return searchers


def warm_up(searchers: Mapping[str, Searcher]) -> None:
    """Search every index once, so that the first request does not wait for vectors to be loaded."""
    for searcher in searchers.values():
        searcher.search_texts(["a"], SearchRequest(k=1))


def make_server(app: FastAPI, shares: Callable[[], None] | None = None) -> uvicorn.Server:
    """The server of an app; its `run` takes the listening sockets.

    If it `shares` its sockets with other processes, it calls this function when it accepts connections.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=2**18,  # a longer query then gets our error, not that of h11
        # asyncio accepts as many connections at a time as the backlog: one process would take all that arrive together.
        backlog=BACKLOG if shares is None else 1,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if shares is not None:
                for listening in sockets or ():
                    listening.listen(BACKLOG)  # the kernel's queue is as long as ever
                shares()

    return Server(config)


def _unique_name(address: str, taken: Mapping[str, Searcher]) -> str:
    """The name of a file, or the last part of another address, with a number if another index has the same name."""
    path = urlsplit(address).path if "://" in address else address
    stem = name = Path(path).stem
    number = 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    return name


def _describe(host: str, port: int, reason: OSError) -> str:
    if reason.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, or --port 0 for any free one"
    if reason.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} of {host} requires elevated privileges; choose one above 1023, such as --port 8000"
    if reason.errno == errno.EADDRNOTAVAIL:
        return _UNKNOWN_HOST.format(host)
    return f"{host}:{port}: cannot listen on this address ({reason.strerror})"
