"""Who may ask, and what every answer says about itself to a browser."""

from __future__ import annotations

import functools
import ipaddress
import logging
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.serve.errors import problem

LOCAL = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
}

_log = logging.getLogger(__name__)


class Guard:
    """Lets through requests to a known host from its own pages, and marks every answer as not to be embedded.

    A page elsewhere can make a browser ask 127.0.0.1, or call its own name 127.0.0.1; the Host header tells the second,
    the Origin header the first. What nobody foresaw becomes one sentence too, and goes to the log.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(_plain(host) for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def marking(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(Headers(scope=scope))
        try:
            await (refusal or self._app)(scope, receive, marking)
        except ClientDisconnect:
            pass
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await problem(500, "something went wrong here; the log of the service says what")(scope, receive, marking)

    def _refusal(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if _plain(_without_port(host)) not in self._hosts:
            sentence = f"the host {host[:100]!r} is not served here; `diptych serve --allow-host NAME` allows one"
            return problem(400, sentence)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return problem(403, f"pages of {origin[:100]} may not ask here; open the page of this service")
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


@functools.lru_cache(maxsize=256)
def _plain(host: str) -> str:
    """A host's name in one form: lower case, an address without brackets and in its shortest form."""
    name = host.lower().rstrip(".").removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
