"""What the routes answer, over a real index."""

import io

import numpy as np
import pytest
from PIL import Image

from diptych.index.entries import Ask
from diptych.index.search import Searcher
from diptych.serve.app import create_app
from diptych.serve.schemas import Explained, Health, Indexes, SearchAnswer
from diptych.serve.stored import stored


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
    expected = standing.searcher.ask_texts(["something green"], Ask(k=2))[0]
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


def test_unknown_words_are_named_and_a_query_of_them_is_chance(standing):
    some = standing.get("/search?text=a red zebra").json()
    assert some["unknown"] == ["zebra"]
    assert some["message"].startswith("The model does not know “zebra”.")
    assert "none of these words" in standing.get("/search?text=zebra").json()["message"]


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

    def counted(self, queries, asks, of):
        searched.append(len(asks))
        return search(self, queries, asks, of)

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


def test_a_stored_entry_is_what_was_indexed(two):
    ids, vectors = two["first"].store.vectors("image")
    row, kind = stored(two["first"], int(ids[1]))
    assert (kind, row.sets) == ("image", None)
    assert np.array_equal(row.vectors, vectors[[1]])
