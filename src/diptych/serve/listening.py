"""The address that a service listens on, taken before anything slow begins."""

from __future__ import annotations

import errno
import socket

from diptych.errors import DiptychError

BACKLOG = 1024
_UNKNOWN = "--host {}: no such address of this machine; 127.0.0.1 is its own"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any free one. What is wrong with the address is one line with the remedy."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (socket.gaierror, UnicodeError):
        raise DiptychError(_UNKNOWN.format(host)) from None
    except OSError as reason:
        raise DiptychError(_explanation(host, port, reason)) from None


def address_of(listening: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _explanation(host: str, port: int, reason: OSError) -> str:
    if reason.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken; choose another with --port, or --port 0 for any that is free"
    if reason.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} of {host} is not for everybody; choose one from 1024 on, such as --port 8000"
    if reason.errno == errno.EADDRNOTAVAIL:
        return _UNKNOWN.format(host)
    return f"{host}:{port}: cannot be listened on ({reason.strerror})"
