"""Middleware: which requests are let through, headers of every response, and HEAD requests."""

from __future__ import annotations

import functools
import ipaddress
import logging
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.serve.errors import INTERNAL, error_response

LOOPBACK = ("127.0.0.1", "localhost", "::1")
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")  # added by proxies
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without a referrer, browsers send the forms of our own page with Origin: null
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
}

_log = logging.getLogger(__name__)


def is_local(scope: Scope) -> bool:
    """Whether a request comes from this machine, so that its user may know where files are.

    Behind a proxy on this machine every client seems to be local, but its requests name another host or say so.
    """
    headers = Headers(scope=scope)
    if any(name in headers for name in FORWARDED) or scope.get("client") is None:
        return False
    try:
        address = ipaddress.ip_address(scope["client"][0].partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback and _normalise(_without_port(headers.get("host", ""))) in LOOPBACK


class Guard:
    """Refuses requests for unknown hosts or from pages of other origins, and adds security headers to responses.

    A page of another site can make a browser send requests to 127.0.0.1, which the Origin header reveals, or resolve
    its own host name to 127.0.0.1, which the Host header reveals. Unexpected exceptions are logged and become a 500.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(_normalise(host) for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # a route may be stricter
            await send(message)

        refusal = self._refusal(Headers(scope=scope))
        try:
            await (refusal or self._app)(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            failure = error_response(500, INTERNAL)
            await failure(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if _normalise(_without_port(host)) not in self._hosts:
            message = f"the host {host[:100]!r} is not served; `diptych serve --allow-host NAME` allows one"
            return error_response(400, message)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return error_response(403, f"pages of {origin[:100]} may not use this service; open its own page")
        return None


class _BodyNotWantedError(Exception):
    """The headers have been sent, and a HEAD request needs nothing else."""


class HeadAsGet:
    """Answers HEAD like GET, without the body, so that routes only define GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
            elif message.get("more_body"):
                raise _BodyNotWantedError  # stops a response that reads a file whose content is not sent
            else:
                await send({**message, "body": b""})

        get = {**scope, "method": "GET"}  # a copy: the server reads its own scope to know whether a body follows
        try:
            await self._app(get, receive, send_without_body)
        except _BodyNotWantedError:
            await send({"type": "http.response.body"})
        finally:
            if "route" in get:  # the metrics are per route
                scope["route"] = get["route"]


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


@functools.lru_cache(maxsize=256)
def _normalise(host: str) -> str:
    """A host name in lower case; an IP address without brackets and in its shortest form."""
    name = host.lower().rstrip(".").removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
