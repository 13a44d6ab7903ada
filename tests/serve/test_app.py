"""What the routes answer, over a real index."""

import asyncio
import io
from types import SimpleNamespace
from typing import ClassVar

import httpx2
import numpy as np
import pytest
from PIL import Image

from diptych.evaluation.localisation import localise
from diptych.index.entries import SearchRequest
from diptych.index.search import Searcher
from diptych.serve.app import create_app
from diptych.serve.metrics import Measured, Metrics
from diptych.serve.schemas import Explained, Health, Indexes, SearchAnswer
from diptych.serve.stored import stored

HEADERS = [(b"host", b"127.0.0.1")]
HEAD = {"type": "http", "method": "HEAD", "scheme": "http", "query_string": b"", "headers": HEADERS}


def keys(answer):
    assert answer.status_code == 200, answer.text
    SearchAnswer.model_validate(answer.json())  # what is answered by hand is what is documented
    return [hit["key"] for hit in answer.json()["hits"]]


def picture(colour, size=(50, 50), form="PNG"):
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, form)
    return out.getvalue()


def test_a_text_finds_what_the_library_finds(standing):
    answer = standing.get("/search", params={"text": "something green", "k": 2})
    expected = standing.searcher.search_texts(["something green"], SearchRequest(k=2))[0]
    assert keys(answer) == [hit.entry.key for hit in expected.hits]
    told = answer.json()
    assert told["hits"][0]["key"] == "green.jpg"
    assert told["hits"][0]["score"] == pytest.approx(expected.hits[0].score, abs=1e-6)
    assert told["hits"][0]["captions"] == ["a green thing"]
    assert (told["index"], told["text"], told["to"], told["searched"]) == ("photos", "something green", "image", 3)
    assert standing.post("/search", json={"text": "something green", "k": 2}).json()["hits"] == told["hits"]


def test_texts_are_found_and_filters_narrow(standing):
    assert keys(standing.get("/search?text=a blue thing&to=text&k=1")) == ["below/blue.jpg#0"]
    assert keys(standing.get("/search?text=green&folder=below")) == ["below/blue.jpg"]
    assert keys(standing.post("/search", json={"text": "green", "folder": "below"})) == ["below/blue.jpg"]
    nothing = standing.get("/search?text=green&until=1990-01-01")
    assert keys(nothing) == []
    assert nothing.json()["message"] == "No image passes the filters; widen them."
    assert len(keys(standing.get("/search?text=green&folder=&since=&until=&split="))) == 3  # a form with empty fields


def test_more_like_an_entry_leaves_it_out(standing):
    ids = {hit["key"]: hit["id"] for hit in standing.get("/search?text=red").json()["hits"]}
    assert set(keys(standing.get("/similar", params={"id": ids["red.jpg"]}))) == {"green.jpg", "below/blue.jpg"}
    assert keys(standing.get("/similar", params={"id": ids["red.jpg"], "to": "text", "k": 1})) == ["red.jpg#0"]


def test_an_uploaded_image_finds_its_like_and_its_captions(standing):
    assert keys(standing.post("/similar?k=1", content=picture("blue"))) == ["below/blue.jpg"]
    answer = standing.post("/similar?k=1&to=text", content=picture("lime", form="JPEG"))
    assert keys(answer) == ["green.jpg#0"]
    assert answer.json()["text"] is None


def test_an_upload_is_encoded_once_and_as_the_same_file_was(kit, tmp_path):
    class Encoder(kit.Encoder):
        seen: ClassVar = []

        def prepare(self, photo):
            self.seen.append(photo.size)
            return super().prepare(photo)

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/red.jpg").write_bytes(picture("red", (2000, 1500), "JPEG"))
    searcher = kit.searcher_of(tmp_path / "photos", tmp_path / "index", Encoder())
    indexed = Encoder.seen[-1]
    assert indexed < (2000, 1500)
    app = create_app({"photos": searcher})
    searcher.encoder.passes.clear()
    Encoder.seen.clear()
    sent = (tmp_path / "photos/red.jpg").read_bytes()

    async def ask():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            addresses = ["/similar", "/similar?to=text", "/similar?k=1"]
            first = await asyncio.gather(*(client.post(address, content=sent) for address in addresses))
            return [*first, await client.post("/similar?k=2", content=sent)]

    answers = asyncio.run(ask())
    assert [len(keys(answer)) for answer in answers] == [1, 0, 1, 1]
    assert searcher.encoder.passes == [1]
    assert Encoder.seen == [(64, 64), indexed]  # a sample tells how large the model wants photos


def test_unknown_words_are_named_and_a_query_of_them_is_chance(standing):
    some = standing.get("/search?text=a red zebra").json()
    assert some["unknown"] == ["zebra"]
    assert some["message"].startswith("The model does not know “zebra”.")
    chance = standing.get("/search?text=zebra").json()
    assert "none of these words" in chance["message"]
    assert chance["hits"] and not chance["found"]
    assert not any(hit["stands_out"] for hit in chance["hits"])


def test_a_picture_that_a_browser_has_is_not_sent_again(standing):
    red, green = (standing.get(f"/search?text={word}&k=1").json()["hits"][0]["id"] for word in ("red", "green"))
    for size in ("thumbnail", "large"):
        first = standing.get(f"/image/{red}?size={size}")
        assert first.headers["cache-control"] == "private, no-cache"
        had = {"if-none-match": f'"other", W/{first.headers["etag"]}'}
        again = standing.get(f"/image/{red}?size={size}", headers=had)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        other = standing.get(f"/image/{green}?size={size}", headers=had)  # as if the id were now another's
        assert (other.status_code, other.content != first.content) == (200, True)


def test_head_is_get_without_the_body(standing):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    for address in ("/", "/health", "/openapi.json", "/nope", "/image/1"):
        expected, scope = standing.get(address), dict(HEAD, path=address, raw_path=address.encode())
        sent.clear()
        asyncio.run(standing.app(scope, receive, send))
        assert sent[0]["status"] == expected.status_code
        assert dict(sent[0]["headers"])[b"content-length"].decode() == expected.headers["content-length"]
        assert not any(message["body"] for message in sent[1:])
        assert scope["method"] == "HEAD"
    assert scope["route"].path_format == "/image/{id}"  # which is counted by


def test_pictures_are_jpegs_of_the_asked_size(kit, tmp_path):
    kit.fill(tmp_path / "photos", size=(4000, 100))
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    exif[0x010E] = "at home"
    Image.new("RGB", (400, 100), "red").save(tmp_path / "photos" / "red.jpg", exif=exif)
    searcher = kit.searcher_of(tmp_path / "photos", tmp_path / "index")
    with kit.served({"photos": searcher}) as client:
        ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=red").json()["hits"]}
        large = client.get(f"/image/{ids['green.jpg']}?size=large")
        assert large.headers["content-type"] == "image/jpeg"
        assert Image.open(io.BytesIO(large.content)).size == (1600, 40)
        turned = client.get(f"/image/{ids['red.jpg']}?size=large").content
        assert Image.open(io.BytesIO(turned)).size == (100, 400)
        assert not Image.open(io.BytesIO(turned)).getexif()
        text = client.get("/search?text=a red thing&to=text&k=1").json()["hits"][0]["id"]
        assert client.get(f"/image/{text}?size=large").content == turned
        small = client.get(f"/image/{ids['red.jpg']}").content
        assert small == searcher.store.thumbnail(ids["red.jpg"])


def test_words_are_weighed_from_what_is_stored(standing):
    entry = standing.get("/search?text=red&k=1").json()["hits"][0]["id"]
    passes = len(standing.searcher.encoder.passes)
    told = standing.get("/explain", params={"id": entry, "text": "red zebra thing"}).json()
    Explained.model_validate(told)
    by_word = {word["word"]: word["importance"] for word in told["words"]}
    assert by_word["zebra"] is None
    assert by_word["red"] > 0 > by_word["thing"]
    assert len(standing.searcher.encoder.passes) == passes  # no image, and no text as a whole
    assert standing.get("/explain", params={"id": entry, "text": "zebra"}).status_code == 422
    refused = standing.get("/localize", params={"id": entry, "text": "red"})
    assert refused.status_code == 409
    assert "whole images" in refused.json()["error"]


def test_phrases_have_places_and_unknown_ones_have_none(kit, searcher, monkeypatch):
    trained = SimpleNamespace(matcher=None, known=lambda some: np.array(["zebra" not in phrase for phrase in some]))
    monkeypatch.setattr(localise, "check_can_localise", lambda _: None)
    monkeypatch.setattr(searcher.encoder, "trained", trained, raising=False)
    asked = []

    def phrases_in(by, picture, phrases, top):
        asked.append((by, picture.image.size, phrases, top))
        return [[localise.LocatedRegion((15, 10, 60, 40), 0.5)] for _ in phrases]  # in pixels

    monkeypatch.setattr(localise, "localise_in_picture", phrases_in)
    with kit.served({"photos": searcher}) as client:
        assert client.get("/indexes").json()["indexes"][0]["localizes"]
        entry = client.get("/search?text=red&k=1").json()["hits"][0]["id"]
        told = client.get("/localize", params={"id": entry, "text": "a zebra and a red thing"}).json()
        none = client.get("/localize", params={"id": entry, "text": "a zebra"})
    assert told == {
        "id": entry,
        "phrases": [
            {"phrase": "a zebra", "places": []},
            {"phrase": "a red thing", "places": [{"box": [0.25, 0.25, 1.0, 1.0], "score": 0.5}]},
        ],
    }
    assert asked == [(trained, (60, 40), ["a red thing"], 1)]
    assert (none.status_code, "knows none of its words" in none.json()["error"]) == (422, True)


def test_it_tells_what_is_served(standing):
    (about,) = Indexes.model_validate(standing.get("/indexes").json()).indexes
    assert (about.name, about.images, about.texts, about.model) == ("photos", 3, 3, "fake")
    assert (about.source_name, about.folders, about.localizes) == ("photos", ["below"], False)
    health = Health.model_validate(standing.get("/health").json())
    assert (health.status, health.problems) == ("ok", [])


@pytest.fixture(scope="module")
def two(kit, tmp_path_factory):
    """Two indexes of one model."""
    place = tmp_path_factory.mktemp("two")
    encoder = kit.Encoder()
    kit.fill(place / "first")
    kit.fill(place / "second", names=("blue", "red"))
    files = {name: place / f"{name}.diptych" for name in ("first", "second")}
    return {name: kit.searcher_of(place / name, file, encoder) for name, file in files.items()}


def test_the_first_index_is_asked_unless_another_is_named(kit, two):
    with kit.served(two) as client:
        assert len(keys(client.get("/search?text=red"))) == 3
        assert keys(client.get("/search?text=red&index=second")) == ["below/red.jpg", "blue.jpg"]
        refused = client.get("/search?text=red&index=secund")
        assert refused.status_code == 404
        assert "did you mean 'second'?" in refused.json()["error"]


def test_questions_asked_at_once_share_a_pass_and_a_product(kit, two, monkeypatch):
    app = create_app(two)
    encoder = two["first"].encoder
    searched = []
    search = Searcher.search

    def counted(self, queries):
        searched.append(len(queries))
        return search(self, queries)

    monkeypatch.setattr(Searcher, "search", counted)
    encoder.passes.clear()
    words = [f"red {number}" for number in range(20)]
    addresses = [f"/search?text={text}&index={name}&k=1" for name in two for text in words]
    answers = kit.together(app, [*addresses, addresses[0], "/search?text=poison", "/search?text=venom"])
    assert [answer.status_code for answer in answers] == [200] * 41 + [500] * 2
    assert all(answer.json()["hits"][0]["key"].endswith("red.jpg") for answer in answers[:41])
    assert [answer.json()["text"] for answer in answers[:20]] == words
    assert "no finite numbers" in answers[-1].json()["error"]
    healthy = [size for size in encoder.passes if size > 1]
    assert sum(searched) <= 41  # the twin did not ask again
    assert len(searched) < 15
    assert len(healthy) < 8
    encoder.passes.clear()
    assert kit.together(app, addresses[:1])[0].json()["hits"] == answers[0].json()["hits"]
    assert encoder.passes == []  # it was encoded already


def test_figures_for_prometheus(kit, two):
    with kit.served(two) as client:
        for text in ("red", "blue", "red"):
            client.get(f"/search?text={text}")
        client.get("/search?text=")
        client.get("/made/up/4711")
        told = client.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=")
    lines = dict(line.rsplit(" ", 1) for line in told.text.splitlines() if not line.startswith("#"))
    assert lines['diptych_requests_total{route="/search",status="200"}'] == "3.0"
    assert lines['diptych_requests_total{route="/search",status="422"}'] == "1.0"
    assert lines['diptych_requests_total{route="none",status="404"}'] == "1.0"
    assert lines['diptych_request_seconds_count{route="/search"}'] == "4.0"
    assert (lines["diptych_cache_hits_total"], lines["diptych_cache_misses_total"]) == ("1.0", "2.0")
    assert lines["diptych_batch_size_count"] == "3.0"
    assert lines['diptych_entries{index="second",kind="image"}'] == "2.0"


def test_who_goes_away_is_no_fault_of_ours(kit, two):
    async def receive():
        return {"type": "http.disconnect"}

    async def send(_):
        raise AssertionError("nobody is there")

    with kit.served(two) as client:
        scope = dict(HEAD, method="POST", path="/similar", raw_path=b"/similar")
        asyncio.run(client.app(scope, receive, send))
        told = client.get("/metrics").text
    assert 'diptych_requests_total{route="/similar",status="499"} 1.0' in told
    assert 'status="500"' not in told


def test_a_fault_that_passes_through_is_counted_as_one():
    async def broken(scope, receive, send):
        raise ValueError

    metrics = Metrics(dict)
    with pytest.raises(ValueError):
        asyncio.run(Measured(broken, metrics)({"type": "http"}, None, None))
    assert b'status="500"} 1.0' in metrics.text()


def test_a_stored_entry_is_what_was_indexed(two):
    ids, vectors = two["first"].store.vectors("image")
    row, kind = stored(two["first"], int(ids[1]))
    assert (kind, row.sets) == ("image", None)
    assert np.array_equal(row.vectors, vectors[[1]])
