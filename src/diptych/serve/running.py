"""Finds a service that already runs for an index: it notes its URL and a token in a file beside the index."""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from diptych.files import write_text

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

ROUTE = "/instance"  # answers with the token, which tells this service from another one at the same address

_PROBE_SECONDS = 2.0


def running_service(index: str | Path) -> str | None:
    """The URL of the service that runs for an index; None if there is none, or one that does not answer."""
    try:
        noted = json.loads(_note(index).read_text(encoding="utf-8"))
        url, token = str(noted["url"]), str(noted["token"])
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_PROBE_SECONDS)
        try:
            connection.request("GET", ROUTE)
            answer = connection.getresponse().read(len(token) + 1)
        finally:
            connection.close()
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return None
    return url if answer.decode(errors="replace") == token else None


@contextmanager
def noted_service(index: str | Path, app: FastAPI, url: str) -> Iterator[None]:
    """Note that a service runs for an index, while the block runs."""
    from starlette.responses import PlainTextResponse

    token = secrets.token_hex(16)

    async def instance(_request: Request) -> Response:
        return PlainTextResponse(token)

    app.add_route(ROUTE, instance, include_in_schema=False)
    note = _note(index)
    write_text(note, json.dumps({"url": url, "token": token}))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def _note(index: str | Path) -> Path:
    return Path(index).parent / f".{Path(index).name}.service"
