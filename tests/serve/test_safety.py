"""Who may ask, what may be read, and what is said to those who ask for something else."""

import asyncio
import io
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.requests import Request

from diptych.serve import pictures, uploads

MEGABYTES = 2**20


def sentence(answer, status):
    """The one sentence of an error."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert list(told) == ["error"]
    assert told["error"] and "\n" not in told["error"]
    return told["error"]


STRANGE = {
    "dots": "../photos.diptych",
    "encoded-dots": "%2e%2e/photos.diptych",
    "encoded-twice": "%252e%252e%252fphotos.diptych",
    "absolute": "/etc/passwd",
    "encoded-slash": "%2Fetc%2Fpasswd",
    "backslash": "..%5C..%5Cphotos",
    "nul": "1%00",
    "nul-in-front": "%001",
    "long-number": "9" * 5000,
    "too-large": "9223372036854775808",
    "zero": "0",
    "negative": "-1",
    "fraction": "1.0",
    "other-digits": "%D9%A1",
    "space": "%201",
    "plus": "+1",
    "below": "1/2",
    "name": "red.jpg",
    "nothing": "",
    "unknown": "4711",
}


@pytest.mark.parametrize("size", ["thumbnail", "large"])
@pytest.mark.parametrize("id", STRANGE.values(), ids=STRANGE.keys())
def test_only_the_id_of_an_entry_is_a_picture(standing, monkeypatch, id, size):
    def opened(*_):
        raise AssertionError("a file was opened")

    monkeypatch.setattr(pictures, "decode", opened)
    monkeypatch.setattr(pictures, "file_within", opened)
    sentence(standing.get(f"/image/{id}", params={"size": size}), 404)


@given(st.text())
def test_what_is_no_id_is_refused_before_anything_is_read(said):
    try:
        number = pictures.entry_number(said)
    except pictures.RefusedError:
        return
    assert said.isascii() and said.isdigit() and number == int(said) and 0 < number < 2**63


def leave(folder, target):
    """What replaces red.jpg since it was indexed: a link, or the folder around it one that leads elsewhere."""
    (folder / "red.jpg").unlink()
    (folder / "red.jpg").symlink_to(target)


def test_a_link_that_leaves_the_folder_is_not_followed(kit, folder, searcher, tmp_path):
    secret = tmp_path / "photos-secret"  # its name begins as that of the folder does
    kit.fill(secret)
    with kit.served({"photos": searcher}) as client:
        ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=red").json()["hits"]}
        address = f"/image/{ids['red.jpg']}?size=large"
        assert client.get(address).status_code == 200
        leave(folder, secret / "red.jpg")
        assert "not there any more" in sentence(client.get(address), 404)
        leave(folder, folder / "green.jpg")  # stays inside
        assert client.get(address).status_code == 200
        leave(folder, folder / "red.jpg")  # a circle
        sentence(client.get(address), 404)
        (folder / "below").rename(tmp_path / "moved")
        (folder / "below").symlink_to(tmp_path / "moved")
        sentence(client.get(f"/image/{ids['below/blue.jpg']}?size=large"), 404)
        assert client.get(f"/image/{ids['below/blue.jpg']}").status_code == 200  # the index has its thumbnail


def test_a_file_that_became_something_else_is_not_sent(kit, folder, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=red").json()["hits"]}
        (folder / "red.jpg").write_text("password: 1234")
        told = client.get(f"/image/{ids['red.jpg']}?size=large")
        assert "red.jpg: the file cannot be read as an image" in sentence(told, 404)
        assert str(folder) not in told.text
        (folder / "green.jpg").unlink()
        (folder / "green.jpg").mkdir()
        sentence(client.get(f"/image/{ids['green.jpg']}?size=large"), 404)


BAD_QUERIES = {
    "none": ({}, "text is missing"),
    "empty": ({"text": ""}, "is empty"),
    "blank": ({"text": " \t"}, "is empty"),
    "long": ({"text": "a" * 1001}, "at most 1000 characters"),
    "huge": ({"text": "a " * 30_000}, "at most 1000 characters"),
    "no-hits": ({"text": "a", "k": 0}, "k: "),
    "all-hits": ({"text": "a", "k": 10**9}, "k: "),
    "huge-k": ({"text": "a", "k": "9" * 5000}, "k: "),
    "word-k": ({"text": "a", "k": "many"}, "k: "),
    "kind": ({"text": "a", "to": "video"}, "to: "),
    "day": ({"text": "a", "since": "yesterday"}, "not a day"),
    "no-such-day": ({"text": "a", "until": "2026-02-30"}, "not a day"),
    "split": ({"text": "a", "split": "nope"}, "no split 'nope'"),
    "field": ({"text": "a", "kk": 3}, "kk: there is no such field"),
    "field-query": ({"text": "a", "query": 3}, "query: there is no such field"),
}


@pytest.mark.parametrize(("query", "reason"), BAD_QUERIES.values(), ids=BAD_QUERIES.keys())
def test_a_bad_query_is_one_sentence(standing, query, reason):
    assert reason in sentence(standing.get("/search", params=query), 422)
    posted = standing.post("/search", json=query)
    if posted.status_code == 413:
        assert "1,000 characters" in sentence(posted, 413)
    else:
        assert reason in sentence(posted, 422)


def test_columns_that_are_not_there(standing):
    assert "no column 'colour'" in sentence(standing.get("/search?text=a&where=colour=red"), 422)
    assert "no column 'colour'" in sentence(
        standing.post("/search", json={"text": "a", "where": {"colour": "red"}}), 422
    )
    assert "column=value" in sentence(standing.get("/search?text=a&where=colour"), 422)


BODIES = {
    "not-json": (b"{text: a}", 422),
    "cut": (b'{"text": "a"', 422),
    "list": (b'["a"]', 422),
    "null": (b"null", 422),
    "nothing": (b"", 422),
    "nested": (b"[" * 50_000, 422),
    "not-utf8": b'{"text": "\xff"}',
    "half-a-character": (rb'{"text": "\ud800"}', 422),
    "numbers": (b'{"text": 3}', 422),
    "number-as-text": (b'{"text": "a", "k": "5"}', 422),
    "number-as-truth": (b'{"text": "a", "k": true}', 422),
    "huge": (b" " * 70_000, 413),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_bad_body_is_one_sentence(standing, body):
    content, status = body if isinstance(body, tuple) else (body, 422)
    sentence(standing.post("/search", content=content, headers={"content-type": "application/json"}), status)


def test_a_form_of_another_site_cannot_ask(standing):
    asked = json.dumps({"text": "red"})
    sentence(standing.post("/search", content=asked, headers={"content-type": "text/plain"}), 415)
    headers = {"content-type": "application/json", "origin": "http://evil.example"}
    sentence(standing.post("/search", content=asked, headers=headers), 403)


def png(size):
    out = io.BytesIO()
    Image.new("1", size).save(out, "PNG")
    return out.getvalue()


UPLOADS = {
    "nothing": (lambda: b"", 422, "empty"),
    "not-an-image": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "not an image"),
    "cut-short": (lambda: png((3000, 3000))[:60], 415, "the image"),
    "too-many-bytes": (lambda: bytes(20 * MEGABYTES + 1), 413, "20 MB"),
    "too-many-pixels": (lambda: png((10_000, 5_001)), 415, "50,000,000 pixels"),
}


@pytest.mark.parametrize(("body", "status", "reason"), UPLOADS.values(), ids=UPLOADS.keys())
def test_a_bad_upload_is_one_sentence(standing, body, status, reason):
    assert reason in sentence(standing.post("/similar", content=body()), status)


@pytest.mark.parametrize("declared", [{}, {b"content-length": b"5"}], ids=["undeclared", "lied"])
def test_a_body_without_end_is_not_read_to_the_end(declared):
    received = 0

    async def receive():
        nonlocal received
        received += 100
        return {"type": "http.request", "body": bytes(100), "more_body": True}

    request = Request({"type": "http", "headers": list(declared.items())}, receive)
    with pytest.raises(uploads.RefusedError, match="too much"):
        asyncio.run(uploads.read_body(request, 1000, "too much"))
    assert received < 6000


@pytest.mark.parametrize("limit", ["QUIET", "LONGEST"])
def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch, limit):
    monkeypatch.setattr(uploads, limit, 0.01)

    async def receive():
        await asyncio.Event().wait()

    with pytest.raises(uploads.RefusedError, match="did not come in time") as refused:
        asyncio.run(uploads.read_body(Request({"type": "http", "headers": []}, receive), 1000, "too much"))
    assert refused.value.status == 408


def test_few_images_are_held_and_one_is_decoded_at_a_time(kit, monkeypatch):
    reading, decoding = [], []

    class Encoder(kit.Encoder):
        def prepare(self, photo):
            decoding.append(threading.current_thread().name)
            return super().prepare(photo)

    async def story():
        service, encoder, may = uploads.Uploads(lambda *_: None), Encoder(), asyncio.Event()

        def asked(number):
            async def receive():
                reading.append(number)
                await may.wait()
                return {"type": "http.request", "body": png((number + 1, 1)), "more_body": False}

            return Request({"type": "http", "headers": []}, receive)

        sent = [asyncio.create_task(service.read(asked(number), encoder)) for number in range(9)]
        for _ in range(20):
            await asyncio.sleep(0)
        begun = len(reading)
        may.set()
        read = await asyncio.gather(*sent)
        service.close()
        return begun, read

    begun, read = asyncio.run(story())
    assert begun == uploads.AT_ONCE
    assert len({upload.digest for upload in read}) == len(reading) == 9
    assert len(set(decoding)) == 1


def test_what_is_said_of_the_length_is_not_believed(standing):
    lie = {"content-length": str(10**12)}
    assert "20 MB" in sentence(standing.post("/similar", content=b"x", headers=lie), 413)
    assert uploads.BYTES == 20 * MEGABYTES and uploads.PIXELS == 50_000_000


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


def test_the_host_must_be_one_of_this_service(kit, standing):
    with kit.served({"photos": standing.searcher}, hosts=["photos.home", "192.168.7.7"]) as client:
        for host in ALLOWED:
            assert client.get("/search?text=red", headers={"host": host}).status_code == 200, host
        for host in REFUSED:
            assert "--allow-host" in sentence(client.get("/search?text=red", headers={"host": host}), 400), host
    sentence(standing.get("/search?text=red", headers={"host": "photos.home"}), 400)


def test_only_its_own_page_may_ask(standing):
    host = {"host": "localhost:8000"}
    assert standing.get("/health", headers={**host, "origin": "http://localhost:8000"}).status_code == 200
    for origin in ("http://evil.example", "http://localhost:3000", "null", "http://[", "localhost:8000"):
        told = standing.get("/health", headers={**host, "origin": origin})
        sentence(told, 403)
        assert not [name for name in told.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "address", ["/", "/health", "/nope", "/search", "/image/1", "/page/../app.py", "/openapi.json"]
)
def test_every_answer_tells_a_browser_to_be_careful(standing, address):
    headers = standing.get(address).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert "server" not in headers


def test_what_is_not_there(standing):
    sentence(standing.get("/nope"), 404)
    sentence(standing.get("/docs"), 404)
    sentence(standing.get("/page/../app.py"), 404)
    sentence(standing.get("/page/%2e%2e/app.py"), 404)
    wrong = standing.delete("/search")
    sentence(wrong, 405)
    assert wrong.headers["allow"] == "GET, HEAD, POST"
    assert standing.post("/health").headers["allow"] == "GET, HEAD"
    sentence(standing.get("/similar?id=4711"), 404)
    sentence(standing.get("/explain?id=4711&text=red"), 404)
    sentence(standing.get("/search?text=a&index=other"), 404)
