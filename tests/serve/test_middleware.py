"""Which requests are let through, and what every response says to a browser."""

import asyncio

import pytest

from diptych.serve.middleware import HeadAsGet, is_local

ALLOWED = ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "LOCALHOST.", "[::1]:8000", "photos.home:80", "192.168.7.7"]
REFUSED = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8000",
    "",
    "[::2]",
    "127.0.0.1:8000:1",
    "::1@x",
]


def test_the_host_must_be_served(kit, client):
    with kit.served({"photos": client.searcher}, hosts=["photos.home", "192.168.7.7"]) as guarded:
        for host in ALLOWED:
            assert guarded.get("/search?text=red", headers={"host": host}).status_code == 200, host
        for host in REFUSED:
            assert "--allow-host" in kit.error_of(guarded.get("/search?text=red", headers={"host": host}), 400), host
    kit.error_of(client.get("/search?text=red", headers={"host": "photos.home"}), 400)


def test_pages_of_other_origins_are_refused(kit, client):
    host = {"host": "localhost:8000"}
    assert client.get("/health", headers={**host, "origin": "http://localhost:8000"}).status_code == 200
    for origin in ("http://evil.example", "http://localhost:3000", "null", "http://[", "localhost:8000"):
        reply = client.get("/health", headers={**host, "origin": origin})
        kit.error_of(reply, 403)
        assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "address", ["/", "/health", "/nope", "/search", "/image/1", "/page/../app.py", "/openapi.json"]
)
def test_every_response_has_security_headers(client, address):
    headers = client.get(address).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert "server" not in headers


def test_head_is_get_without_the_body(kit, client):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    for address in ("/", "/health", "/openapi.json", "/nope", "/image/1"):
        expected, scope = client.get(address), dict(kit.SCOPE, path=address, raw_path=address.encode())
        sent.clear()
        asyncio.run(client.app(scope, receive, send))
        assert sent[0]["status"] == expected.status_code
        assert dict(sent[0]["headers"])[b"content-length"].decode() == expected.headers["content-length"]
        assert not any(message["body"] for message in sent[1:])
        assert scope["method"] == "HEAD"
    assert scope["route"].path_format == "/image/{id}"  # requests are counted by route


def test_head_reads_no_more_of_a_long_body_than_its_beginning(kit):
    made, sent = [], []

    async def body(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9000")]})
        for block in range(9):
            made.append(block)
            await send({"type": "http.response.body", "body": bytes(1000), "more_body": block < 8})

    async def send(message):
        sent.append(message)

    asyncio.run(HeadAsGet(body)(dict(kit.SCOPE), None, send))
    assert made == [0]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert not sent[1].get("body")
    assert not sent[1].get("more_body")


@pytest.mark.parametrize(
    ("client", "host", "headers", "expected"),
    [
        ("127.0.0.1", "127.0.0.1:8000", {}, True),
        ("127.3.2.1", "localhost", {}, True),
        ("::1", "[::1]:8000", {}, True),
        ("::ffff:127.0.0.1", "localhost:1", {}, True),
        ("192.168.0.2", "127.0.0.1", {}, False),
        ("::ffff:192.168.0.2", "localhost", {}, False),
        ("127.0.0.1", "photos.lan", {}, False),
        ("127.0.0.1", "", {}, False),
        ("127.0.0.1", "localhost", {"x-forwarded-for": "1.2.3.4"}, False),
        ("127.0.0.1", "localhost", {"via": "1.1 proxy"}, False),
        ("testclient", "localhost", {}, False),
        (None, "localhost", {}, False),
    ],
)
def test_who_is_on_this_machine(client, host, headers, expected):
    pairs = [(name.encode(), value.encode()) for name, value in {"host": host, **headers}.items()]
    scope = {"type": "http", "client": client and (client, 5), "headers": pairs}
    assert is_local(scope) is expected
