"""Requests against small servers that misbehave."""

import socket
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from diptych.client import transport
from diptych.client.transport import Body, Transport
from diptych.errors import DiptychError, ServiceError
from diptych.serve.forms import parse_form

FULL = Path("/dev/full")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Shape: 1\r\n\r\n{}"
BUSY = b'HTTP/1.1 503 X\r\nContent-Length: 18\r\n\r\n{"error": "later"}'


@contextmanager
def serving(*connections):
    """A server that answers the requests of each connection with these bytes, and closes the connection after None."""
    seen = []
    listening = socket.create_server(("127.0.0.1", 0))

    def run():
        for replies in connections:
            connection, _ = listening.accept()
            for reply in replies:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(65536)
                seen.append(head)
                if reply is None:
                    break
                connection.sendall(reply)
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", seen
    thread.join(5)
    listening.close()


def send(url, retries=2, timeout=5.0, **named):
    made = Transport(url, timeout, retries, named)
    try:
        return made.send("GET", "/health")
    finally:
        made.close()


def save(url, file):
    made = Transport(url, 5.0, 1, {})
    try:
        made.save("/export", [("index", "a b")], Body.of_json({}), file)
    finally:
        made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "_PAUSE", 0.001)


def test_a_reply_has_its_headers_and_requests_have_those_of_the_client():
    with serving([OK]) as (url, seen):
        reply = send(url + "/below/", Authorization="Basic x")
    assert (reply.content, reply.headers["x-shape"]) == (b"{}", "1")
    assert seen[0].startswith(b"GET /below/health HTTP/1.1\r\n")
    assert b"Authorization: Basic x\r\n" in seen[0]


def test_a_busy_service_is_asked_again_a_few_times():
    with serving([BUSY, BUSY, OK]) as (url, seen):
        assert send(url).content == b"{}"
        assert len(seen) == 3
    with serving([BUSY, BUSY]) as (url, seen), pytest.raises(ServiceError, match=r"^later$") as refused:
        send(url, retries=1)
    assert (refused.value.status, len(seen)) == (503, 2)
    with serving([BUSY]) as (url, seen), pytest.raises(ServiceError):
        send(url, retries=0)
    assert len(seen) == 1


def test_a_kept_connection_that_was_closed_is_opened_again():
    with serving([OK], [OK], [None]) as (url, seen):
        made = Transport(url, 5, 0, {})
        assert made.send("GET", "/a").content == b"{}"
        assert made.send("GET", "/b").content == b"{}"
        made.close()
        with pytest.raises(ServiceError, match="the connection was closed"):
            made.send("GET", "/c")
    assert len(seen) == 3


def test_a_service_that_does_not_answer_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ServiceError, match=r"no answer within 0\.05 seconds$") as late:
            send(url, timeout=0.05)
    assert late.value.status is None
    with pytest.raises(ServiceError, match=r"cannot be reached \(.*\); is `diptych serve` running\?"):
        send(url)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_not_a_service_that_cannot_be_reached(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "atomic_write", lambda file: nullcontext(FULL))
    with serving([OK]) as (url, _), pytest.raises(DiptychError, match=r"a\.zip: cannot be written") as failed:
        save(url, tmp_path / "a.zip")
    assert not isinstance(failed.value, ServiceError)


def test_a_reply_is_saved_once_it_is_complete(tmp_path):
    broken = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
    file = tmp_path / "some.zip"
    for replies in ([broken], [BUSY, broken]):
        with serving(replies) as (url, _), pytest.raises(ServiceError):
            save(url, file)
        assert list(tmp_path.iterdir()) == []
    with serving([BUSY, OK]) as (url, seen):
        save(url, file)
    assert file.read_bytes() == b"{}"
    assert seen[0].startswith(b"POST /export?index=a+b HTTP/1.1\r\n")


@pytest.mark.parametrize("reply", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
def test_what_is_not_http_is_an_error(reply):
    with serving([reply]) as (url, _), pytest.raises(ServiceError):
        send(url)


def test_another_error_page_is_described():
    page = b"HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\n<h1>"
    with serving([page]) as (url, _), pytest.raises(ServiceError, match=r"/health: the service answered with 502$"):
        send(url)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://x?y", ""])
def test_an_address_is_checked(url):
    with pytest.raises(DiptychError, match="not the address of a service; write it as http://"):
        Transport(url, 1, 1, {})


def test_limits_are_checked():
    for timeout, retries in ((0, 1), (1, -1)):
        with pytest.raises(DiptychError, match="a timeout is above 0"):
            Transport("http://x", timeout, retries, {})


def test_forms_are_read_as_they_are_sent():
    files = [("images", b"\r\n--\x00"), ("images", b"")]
    body = Body.of_form([("index", "näme")], files)
    form = parse_form(body.media_type, body.content, frozenset({"images"}))
    assert form == ([("index", "näme")], files)
