"""The client against the real service on loopback; only the model is fake."""

import io
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import diptych
from diptych.client import client as client_module
from diptych.errors import ImageError, ServiceError
from diptych.index.entries import SearchRequest
from diptych.serve.queries import LruCache


def photo(colour="blue"):
    return Image.new("RGB", (40, 30), colour)


def keys(hits):
    return [hit.key for hit in hits]


def test_a_text_finds_what_python_finds(client, searcher):
    answer = client.search("something green", k=2)
    (expected,) = searcher.search_texts(["something green"], SearchRequest(k=2))
    assert keys(answer.hits) == [hit.entry.key for hit in expected.hits]
    assert [hit.score for hit in answer.hits] == pytest.approx([hit.score for hit in expected.hits], abs=1e-6)
    assert (answer.hits[0].captions, answer.found, answer.searched) == (["a green thing"], expected.found, 3)
    assert keys(client.search("green", folder="below", to="image", mode="both").hits) == ["below/blue.jpg"]
    assert client.search("zebra").unknown == ["zebra"]


def test_images_and_entries_find_similar_ones(client, tmp_path):
    photo().save(tmp_path / "blue.png")
    content = (tmp_path / "blue.png").read_bytes()
    for image in (tmp_path / "blue.png", content, photo()):
        assert keys(client.search(image, k=1).hits) == ["below/blue.jpg"]
        assert keys(client.search(image, k=1, to="text").hits) == ["below/blue.jpg#0"]
    (found,) = client.search(content, k=1).hits
    assert set(keys(client.search(found.id).hits)) == {"red.jpg", "green.jpg"}
    added = client.search(content, k=1, text="a gren thingg")
    assert (added.text, added.hits[0].score != found.score) == ("a gren thingg", True)
    with pytest.raises(ServiceError, match="no column 'year' in the index"):
        client.search(found.id, where={"year": "1999"})
    with pytest.raises(ServiceError, match="since 'yesterday': not a day") as refused:
        client.search(found.id, since="yesterday")
    assert refused.value.status == 422


@pytest.mark.parametrize("mode", ["CMYK", "LAB", "RGBA", "P", "1"])
def test_pil_images_of_any_mode_can_be_sent(client, mode):
    image = photo() if mode in ("CMYK", "RGBA") else Image.new(mode, (40, 30))
    assert client.search(image.convert(mode), k=1).hits
    with pytest.raises(ImageError, match="the image: floating-point pixels"):
        client.search(Image.new("F", (4, 3)))


def test_pil_images_are_sent_upright(tmp_path):
    turned = photo()
    turned.paste("red", (0, 0, 20, 30))  # the left half
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    turned.save(tmp_path / "turned.jpg", exif=exif)
    with Image.open(tmp_path / "turned.jpg") as opened:
        sent = Image.open(io.BytesIO(client_module.image_bytes(opened)))
    assert sent.size == (30, 40)
    assert sent.getpixel((15, 5))[0] > 200  # red is above


def test_hits_are_read_page_by_page(client, tmp_path, monkeypatch):
    whole = keys(client.search("thing", k=9).hits)
    asked = []
    send = client._transport.send
    monkeypatch.setattr(client._transport, "send", lambda *sent, **named: asked.append(sent) or send(*sent, **named))
    assert keys(client.hits("thing", k=1)) == whole
    assert len(asked) == 3
    photo().save(tmp_path / "blue.png")
    assert len(keys(client.hits(tmp_path / "blue.png", k=2))) == 3
    assert len(asked) == 5
    next(client.hits("thing", k=1))
    assert len(asked) == 6


def test_batches_are_in_order_however_many(client):
    texts = ["red", "green", "blue"] * 30
    answers = client.search_batch(texts, k=1)
    assert [keys(answer.hits)[0] for answer in answers] == ["red.jpg", "green.jpg", "below/blue.jpg"] * 30
    with pytest.raises(ServiceError, match=r"^texts\.70: text: is empty") as refused:
        client.search_batch([*texts[:70], " "])
    assert refused.value.status == 422
    assert client.search_batch([]) == []


def test_vectors_are_those_of_the_model(client, searcher, monkeypatch):
    texts = ["red", "green -blue", "blue"] * 25
    found = client.encode_texts(texts)
    assert found.dtype == np.float32
    assert np.array_equal(found, searcher.model.encode_texts(texts).vectors)
    sent = []
    monkeypatch.setattr(client_module, "MAX_IMAGES", 2)
    encoded = client._encoded
    monkeypatch.setattr(client, "_encoded", lambda body: sent.append(body) or encoded(body))
    images = client.encode_images([photo("red"), photo("lime"), photo("blue")])
    assert np.allclose(images, searcher.model.encode_texts(["red", "green", "blue"]).vectors)
    assert len(sent) == 2
    assert all(body.media_type.startswith("multipart/form-data") for body in sent)
    assert client.encode_texts([]).shape == client.encode_images([]).shape == (0, 0)
    found[0] = 0  # an array of one's own


def test_sets_of_batches_are_padded():
    parts = [np.ones((1, 2, 3), np.float32), np.ones((2, 4, 3), np.float32)]
    joined = client_module._joined(parts)
    assert joined.shape == (3, 4, 3)
    assert joined.any(2).sum(1).tolist() == [2, 4, 4]


def test_browsing_and_the_state_of_the_service(client):
    assert sorted(keys(client.images())) == ["below/blue.jpg", "green.jpg", "red.jpg"]
    assert keys(client.images("below")) == ["below/blue.jpg"]
    first = client.home(k=2)
    rest = client.home(k=2, cursor=first.next)
    assert len({image.id for image in first.images + rest.images}) == 3
    (folder,) = client.folders()
    assert (folder.path, folder.images) == ("below", 1)
    small, large = (client.image(first.images[0].id, size) for size in ("thumbnail", "large"))
    assert Image.open(io.BytesIO(small)).format == Image.open(io.BytesIO(large)).format == "JPEG"
    assert [index.name for index in client.indexes()] == ["photos"]
    assert client.health().status == "ok"


def test_filters_and_examples_of_more_and_less(client):
    ids = {image.key: image.id for image in client.images()}
    assert keys(client.search(more=[ids["red.jpg"]], k=1).hits) == ["red.jpg"]
    assert keys(client.search("red", k=1).hits) == ["red.jpg"]
    assert "red.jpg" not in keys(client.search("red", less=[ids["red.jpg"]], k=9).hits)
    assert len(keys(client.hits(more=[ids["red.jpg"]], k=1))) == 3
    assert keys(client.images(since="2100-01-01")) == keys(client.home(until="1900-01-01").images) == []
    with pytest.raises(ServiceError, match="no column 'year' in the index"):
        client.home(where={"year": "1999"})
    with pytest.raises(ServiceError, match="text is missing; describe what to look for, or name images"):
        client.search()
    with pytest.raises(ServiceError, match="more: there is no such field"):  # a picture has words instead
        client.search(photo(), more=[1])


def test_a_selection_is_exported_into_a_file(client, tmp_path):
    ids = [image.id for image in client.images()]
    with zipfile.ZipFile(client.export(ids, tmp_path / "some.zip")) as archive:
        assert sorted(archive.namelist()) == ["blue.jpg", "green.jpg", "red.jpg"]
        assert archive.testzip() is None
    listed = client.export(ids[:2], str(tmp_path / "some.txt"), "list").read_text()
    assert len(listed.splitlines()) == 2
    with pytest.raises(ServiceError, match="none of these entries is in this index") as refused:
        client.export([4711], tmp_path / "none.zip")
    assert refused.value.status == 404
    with pytest.raises(diptych.DiptychError, match=r"some\.txt/a\.zip: cannot be written"):
        client.export(ids, tmp_path / "some.txt" / "a.zip")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["some.txt", "some.zip"]


def test_errors_have_the_sentence_and_the_status_of_the_service(client):
    with pytest.raises(ServiceError, match=r"^text: is empty; describe what to look for") as refused:
        client.search("")
    assert refused.value.status == 422
    with pytest.raises(ServiceError, match=r"^no entry 999 in this index") as missing:
        client.image(999)
    assert missing.value.status == 404
    with pytest.raises(ServiceError, match="no index 'other' is served"):
        client.search("red", index="other")
    with pytest.raises(ImageError, match=r"none\.jpg: cannot be read \(No such file"):
        client.search(Path("none.jpg"))
    with pytest.raises(ServiceError, match="not an image in a known format") as unreadable:
        client.encode_images([b"text"])
    assert unreadable.value.status == 415


def test_threads_share_a_client(client):
    found = LruCache()
    threads = [threading.Thread(target=lambda n=n: found.put(n, client.search("red", k=1).hits)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [keys(found.get(n)) for n in range(8)] == [["red.jpg"]] * 8


def test_importing_the_client_imports_neither_torch_nor_fastapi():
    program = "import sys, diptych; diptych.Client(); sys.exit(any(m in sys.modules for m in ('torch', 'fastapi')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
