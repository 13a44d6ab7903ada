"""/encode: vectors as in Python, as JSON or bytes, from the same cache as searches."""

import base64

import numpy as np
import pytest

from diptych.index.search import Searcher
from diptych.models.engines.engine import Encodings
from diptych.serve.app import create_app
from diptych.serve.schemas.answers import Encoded


def b64(content):
    return base64.b64encode(content).decode()


def expected(model, texts):
    return model.encode_texts(texts).vectors


def test_vectors_are_those_of_the_model(kit, client):
    texts = ["a red thing", "something blue"]
    sent = {"texts": texts, "images": [b64(kit.picture("lime"))]}
    answer = client.post("/encode", json=sent)
    assert answer.status_code == 200, answer.text
    found = Encoded.model_validate(answer.json())
    assert found.index == "photos"
    assert np.allclose(found.texts, expected(client.searcher.model, texts), atol=1e-7)
    assert np.allclose(found.images, expected(client.searcher.model, ["green"]), atol=1e-7)


def test_vectors_as_bytes(kit, client):
    sent = {"texts": ["red"], "images": [b64(kit.picture("red")), b64(kit.picture("blue"))]}
    answer = client.post("/encode", json=sent, headers={"accept": "application/octet-stream"})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-shape"] == "3,64"
    array = np.frombuffer(answer.content, "<f4").reshape(3, 64)
    assert np.array_equal(array, expected(client.searcher.model, ["red", "red", "blue"]))


def test_searches_and_encodings_share_the_cache_and_a_pass(kit, searcher):
    model = searcher.model
    with kit.served({"photos": searcher}) as client:
        client.get("/search?text=red")
        client.post("/similar", content=kit.picture("lime"))
        model.passes.clear()
        assert client.post("/encode", json={"texts": ["red"], "images": [b64(kit.picture("lime"))]}).status_code == 200
        assert model.passes == []
        assert client.post("/encode", json={"texts": [f"red {n}" for n in range(9)] * 2}).status_code == 200
        assert sum(model.passes) == 9
        assert len(model.passes) <= 2  # the first text may arrive while the worker is idle


def test_sets_are_padded(kit, tmp_path, folder):
    class Sets(kit.FakeModel):
        def encode_texts(self, texts):
            encoded = super().encode_texts(texts)
            return Encodings(encoded.vectors, tuple(np.full((len(t.split()), 64), 0.5, np.float32) for t in texts))

    searcher = kit.searcher_of(folder, tmp_path / "plain.diptych")
    with kit.served({"photos": Searcher(searcher.store, Sets())}) as client:
        sent = {"texts": ["red", "a red one"]}
        assert [len(rows) for rows in client.post("/encode", json=sent).json()["texts"]] == [3, 3]
        answer = client.post("/encode", json=sent, headers={"accept": "application/octet-stream"})
        assert answer.headers["x-shape"] == "2,3,64"
        array = np.frombuffer(answer.content, "<f4").reshape(2, 3, 64)
        assert array.any(2).tolist() == [[True, False, False], [True, True, True]]
    searcher.store.close()


BAD = {
    "nothing": ({}, 422, "nothing to encode"),
    "blank": ({"texts": ["red", " "]}, 422, "texts.1: "),
    "field": ({"text": "red"}, 422, "text: there is no such field"),
    "many-texts": ({"texts": ["red"] * 65}, 422, "at most 64"),
    "many-images": ({"images": ["aa=="] * 17}, 422, "at most 16"),
    "not-base64": ({"images": ["a photo!"]}, 422, "images.0: not base64"),
    "not-ascii": ({"images": ["é"]}, 422, "images.0: not base64"),
    "empty": ({"images": [""]}, 422, "images.0: the image is empty"),
    "no-image": ({"images": [b64(b"text")]}, 415, "images.0: the file: not an image"),
    "large": ({"images": [b64(bytes(20 * 2**20 + 1))]}, 413, "images.0: the image has more than 20 MB"),
    "huge": ({"images": [b64(bytes(13 * 2**20))] * 2}, 413, "larger than 32 MB"),
    "index": ({"texts": ["red"], "index": "other"}, 404, "no index 'other'"),
    "not-finite": ({"texts": ["red", "venom"]}, 500, "not finite"),
}


@pytest.mark.parametrize(("sent", "status", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_request_is_answered_with_one_sentence(kit, client, sent, status, reason):
    assert reason in kit.error_of(client.post("/encode", json=sent), status)


def test_what_no_model_can_read_is_an_internal_error(kit, client):
    assert "internal error" in kit.error_of(client.post("/encode", json={"texts": ["poison"]}), 500)


def test_an_index_that_was_rebuilt_with_another_model_is_refused(kit, searcher, monkeypatch):
    with kit.client_of(create_app({"photos": searcher})) as client:
        monkeypatch.setattr(searcher.model, "identity", "another")
        assert "restart the service" in kit.error_of(client.post("/encode", json={"texts": ["red"]}), 503)


def test_texts_are_encoded_as_they_are(kit, client):
    """In a search, -blue would exclude; a text that only excludes could not be searched for."""
    texts = ["red -blue", "-5 degrees", "red"]
    found = client.post("/encode", json={"texts": texts}).json()["texts"]
    assert np.allclose(found, expected(client.searcher.model, texts), atol=1e-7)
    searched = client.get("/search", params={"text": "red -blue"})
    assert not np.allclose(found[0], found[2])
    assert kit.keys(searched)[0] == "red.jpg"
    assert "below/blue.jpg" not in kit.keys(searched)
