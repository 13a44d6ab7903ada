"""Requests of the client: kept connections, a bounded number of repetitions, and every failure as a ServiceError."""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from diptych.errors import DiptychError, ServiceError, one_line
from diptych.files import atomic_write

Parsed = TypeVar("Parsed", bound=BaseModel)

_BUSY = 503
_BLOCK = 2**18
_PAUSE = 0.25  # seconds before the first repetition; the pause doubles each time


class _SinkError(Exception):
    """A file on this machine that a reply cannot be written to, which says nothing about the service."""


@dataclass(frozen=True)
class Body:
    """The body of a request, and its media type."""

    content: bytes
    media_type: str

    @staticmethod
    def of_json(value: Any) -> Body:
        """A value as JSON."""
        return Body(json.dumps(value).encode(), "application/json")

    @staticmethod
    def of_form(fields: Iterable[tuple[str, str]], files: Sequence[tuple[str, bytes]]) -> Body:
        """A form with fields and files."""
        boundary = secrets.token_hex(16)
        parts = [(f'name="{name}"', value.encode()) for name, value in fields]
        parts += [(f'name="{name}"; filename="{name}"', content) for name, content in files]
        lines = [
            b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (boundary.encode(), head.encode(), content)
            for head, content in parts
        ]
        return Body(b"".join(lines) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}")


@dataclass(frozen=True)
class Reply:
    """The content of a response, and its headers by their names in lower case."""

    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Transport:
    """Sends requests to a service, over connections that are kept; threads may share it."""

    def __init__(self, url: str, timeout: float, retries: int, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or port == -1:
            raise DiptychError(f"{url}: not the address of a service; write it as http://127.0.0.1:8000")
        if timeout <= 0 or retries < 0:
            raise DiptychError(
                f"timeout = {timeout}, retries = {retries}: a timeout is above 0, and retries are not below"
            )
        self.url = url.rstrip("/")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._folder = parts.path.rstrip("/")
        self._timeout, self._retries, self._headers = timeout, retries, dict(headers)
        self._idle: deque[http.client.HTTPConnection] = deque()  # its methods are atomic

    def send(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, Any]] = (),
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The reply to a request; a service that is busy is asked again, a few times."""
        return self._repeat(method, path, query, body, headers or {}, None)

    def ask(
        self,
        model: type[Parsed],
        method: str,
        path: str,
        query: Sequence[tuple[str, Any]] = (),
        body: Body | None = None,
    ) -> Parsed:
        """The reply to a request as a model."""
        try:
            return model.model_validate_json(self.send(method, path, query, body).content)
        except ValidationError:
            raise self.unreadable() from None

    def save(self, path: str, query: Sequence[tuple[str, Any]], body: Body, file: Path) -> None:
        """Write the reply to a POST request into a file while it arrives; the file appears when it is complete."""
        try:
            with _sink_errors(), atomic_write(file) as temporary, temporary.open("wb") as sink:
                self._repeat("POST", path, query, body, {}, sink)
        except _SinkError as reason:
            raise DiptychError(f"{file}: cannot be written ({reason})") from None

    def unreadable(self) -> ServiceError:
        """The error for a reply that this client does not understand."""
        return ServiceError(f"{self.url}: not an answer of this version of Diptych; is it another service?")

    def _repeat(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, Any]],
        body: Body | None,
        headers: Mapping[str, str],
        sink: BinaryIO | None,
    ) -> Reply:
        address = f"{self._folder}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = {**self._headers, **headers}
        if body is not None:
            sent["Content-Type"] = body.media_type
        for pause in [_PAUSE * 2**number for number in range(self._retries)]:
            status, reply = self._exchange(method, address, body, sent, sink)
            if status != _BUSY:
                break
            time.sleep(pause)
        else:
            status, reply = self._exchange(method, address, body, sent, sink)
        if status >= 300:
            raise ServiceError(_sentence(reply, f"{self.url}{path}: the service answered with {status}"), status)
        return reply

    def close(self) -> None:
        """Close the connections; a later request opens another."""
        while self._idle:
            self._idle.pop().close()

    def _exchange(
        self, method: str, address: str, body: Body | None, headers: Mapping[str, str], sink: BinaryIO | None
    ) -> tuple[int, Reply]:
        """The status and the reply; a kept connection that the service has closed meanwhile is opened again."""
        sent = None if body is None else body.content
        while True:
            connection, is_kept = self._connection()
            try:
                connection.request(method, address, sent, headers)
                response = connection.getresponse()
                received = response.read() if sink is None or response.status >= 300 else _store(response, sink)
                reply = Reply(received, {name.lower(): value for name, value in response.getheaders()})
                self._idle.append(connection)
                return response.status, reply
            except TimeoutError:
                connection.close()
                raise ServiceError(f"{self.url}: no answer within {self._timeout:g} seconds") from None
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as reason:
                connection.close()
                if not is_kept:
                    raise ServiceError(f"{self.url}: the connection was closed ({one_line(reason)})") from None
            except _SinkError:
                connection.close()
                raise
            except (OSError, http.client.HTTPException) as reason:
                connection.close()
                why = f"cannot be reached ({one_line(reason)}); is `diptych serve` running?"
                raise ServiceError(f"{self.url}: the service {why}") from None

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it has been used before."""
        try:
            return self._idle.pop(), True
        except IndexError:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            return kind(self._host, self._port, timeout=self._timeout), False


@contextmanager
def _sink_errors() -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        raise _SinkError(one_line(reason)) from None


def _store(response: http.client.HTTPResponse, sink: BinaryIO) -> bytes:
    """Write the content of a response into a file, from its beginning; nothing of it is left to return."""
    with _sink_errors():
        sink.seek(0)
        sink.truncate()
    while block := response.read(_BLOCK):
        with _sink_errors():
            sink.write(block)
    if response.length:  # read in blocks, a response that breaks off is no error yet
        raise http.client.IncompleteRead(b"", response.length)
    return b""


def _sentence(reply: Reply, otherwise: str) -> str:
    """The sentence of an error, as the service wrote it."""
    try:
        return str(json.loads(reply.content)["error"])
    except (ValueError, KeyError, TypeError):
        return otherwise
