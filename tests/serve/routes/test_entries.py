"""/image, /explain and /localize: what may be read, and what is refused."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diptych.models.explain.localise import LocatedRegion
from diptych.serve.routes import entries
from diptych.serve.schemas.answers import Explained
from support.videos import video

BAD_IDS = {
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
@pytest.mark.parametrize("id", BAD_IDS.values(), ids=BAD_IDS.keys())
def test_only_the_id_of_an_entry_names_a_picture(kit, client, monkeypatch, id, size):
    def opened(*_):
        raise AssertionError("a file was opened")

    monkeypatch.setattr(entries, "decode", opened)
    monkeypatch.setattr(entries, "file_within", opened)
    kit.error_of(client.get(f"/image/{id}", params={"size": size}), 404)


@given(st.text())
def test_anything_but_an_id_is_refused_before_anything_is_read(text):
    try:
        number = entries.parse_id(text)
    except entries.RequestError:
        return
    assert text.isascii()
    assert text.isdigit()
    assert number == int(text)
    assert 0 < number < 2**63


def replace_by_link(folder, target):
    """Replace red.jpg by a link after it was indexed."""
    (folder / "red.jpg").unlink()
    (folder / "red.jpg").symlink_to(target)


def test_a_link_that_leaves_the_folder_is_not_followed(kit, folder, searcher, tmp_path):
    secret = tmp_path / "photos-secret"  # its name begins like that of the folder
    kit.fill(secret)
    with kit.served({"photos": searcher}) as client:
        ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=red").json()["hits"]}
        address = f"/image/{ids['red.jpg']}?size=large"
        assert client.get(address).status_code == 200
        replace_by_link(folder, secret / "red.jpg")
        assert "no longer exists" in kit.error_of(client.get(address), 404)
        replace_by_link(folder, folder / "green.jpg")  # inside the folder
        assert client.get(address).status_code == 200
        replace_by_link(folder, folder / "red.jpg")  # a cycle
        kit.error_of(client.get(address), 404)
        (folder / "below").rename(tmp_path / "moved")
        (folder / "below").symlink_to(tmp_path / "moved")
        kit.error_of(client.get(f"/image/{ids['below/blue.jpg']}?size=large"), 404)
        assert client.get(f"/image/{ids['below/blue.jpg']}").status_code == 200  # the index has its thumbnail


def test_a_file_that_is_no_longer_an_image_is_not_sent(kit, folder, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=red").json()["hits"]}
        (folder / "red.jpg").write_text("password: 1234")
        reply = client.get(f"/image/{ids['red.jpg']}?size=large")
        assert "red.jpg: the file can no longer be read as an image" in kit.error_of(reply, 404)
        assert str(folder) not in reply.text
        (folder / "green.jpg").unlink()
        (folder / "green.jpg").mkdir()
        kit.error_of(client.get(f"/image/{ids['green.jpg']}?size=large"), 404)


def test_a_picture_that_a_browser_has_is_not_sent_again(client):
    red, green = (client.get(f"/search?text={word}&k=1").json()["hits"][0]["id"] for word in ("red", "green"))
    for size in ("thumbnail", "large"):
        first = client.get(f"/image/{red}?size={size}")
        assert first.headers["cache-control"] == "private, no-cache"
        had = {"if-none-match": f'"other", W/{first.headers["etag"]}'}
        again = client.get(f"/image/{red}?size={size}", headers=had)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        other = client.get(f"/image/{green}?size={size}", headers=had)  # as if the id now belonged to another entry
        assert (other.status_code, other.content != first.content) == (200, True)


def test_pictures_are_upright_jpegs_without_metadata(kit, tmp_path):
    kit.fill(tmp_path / "photos", size=(4000, 100))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated
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


def test_words_are_explained_from_the_stored_encoding(client):
    entry = client.get("/search?text=red&k=1").json()["hits"][0]["id"]
    passes = len(client.searcher.model.passes)
    reply = client.get("/explain", params={"id": entry, "text": "red zebra thing"}).json()
    Explained.model_validate(reply)
    by_word = {word["word"]: word["importance"] for word in reply["words"]}
    assert by_word["zebra"] is None
    assert by_word["red"] > 0 > by_word["thing"]
    assert len(client.searcher.model.passes) == passes  # neither the image nor the whole text was encoded
    assert client.get("/explain", params={"id": entry, "text": "zebra"}).status_code == 422
    refused = client.get("/localize", params={"id": entry, "text": "red"})
    assert refused.status_code == 409
    assert "whole images" in refused.json()["error"]


def test_phrases_have_places_and_unknown_ones_have_none(kit, searcher, monkeypatch):
    monkeypatch.setattr(searcher.model, "localises", True)
    monkeypatch.setattr(
        searcher.model, "known_texts", lambda some: np.array(["zebra" not in phrase for phrase in some])
    )
    asked = []

    def localize(image, phrases, top):
        asked.append((image.size, phrases, top))
        return [[LocatedRegion((15, 10, 60, 40), 0.5)] for _ in phrases]  # in pixels

    monkeypatch.setattr(searcher.model, "localize", localize)
    with kit.served({"photos": searcher}) as client:
        assert client.get("/indexes").json()["indexes"][0]["localizes"]
        entry = client.get("/search?text=red&k=1").json()["hits"][0]["id"]
        reply = client.get("/localize", params={"id": entry, "text": "a zebra and a red thing"}).json()
        none = client.get("/localize", params={"id": entry, "text": "a zebra"})
    assert reply == {
        "id": entry,
        "phrases": [
            {"phrase": "a zebra", "places": []},
            {"phrase": "a red thing", "places": [{"box": [0.25, 0.25, 1.0, 1.0], "score": 0.5}]},
        ],
    }
    assert asked == [((60, 40), ["a red thing"], 1)]
    assert (none.status_code, "knows none of its words" in none.json()["error"]) == (422, True)


def test_the_large_picture_of_a_frame_is_read_from_its_video(kit, folder, tmp_path):
    video(folder / "film.mp4", [(200, 0, 0), (0, 0, 200)], size=(320, 240), rotation=-90)
    searcher = kit.searcher_of(folder, tmp_path / "index")
    with kit.served({"photos": searcher}) as client:
        hits = {hit["key"]: hit for hit in client.get("/search?text=red&k=20").json()["hits"]}
        frames = [hits[key] for key in ("film.mp4#0.0", "film.mp4#5.0")]
        assert [frame["moment"] for frame in frames] == [0.0, 5.0]
        assert hits["red.jpg"]["moment"] is None
        for frame, colour in zip(frames, [(200, 0, 0), (0, 0, 200)], strict=True):
            large = client.get(f"/image/{frame['id']}?size=large")
            with Image.open(io.BytesIO(large.content)) as picture:
                assert picture.size == (240, 320)
                assert np.abs(np.array(picture.getpixel((60, 200)), int) - colour).max() < 40
        (folder / "film.mp4").write_text("no longer a video")
        reply = client.get(f"/image/{frames[0]['id']}?size=large")
        assert "film.mp4#0.0: the file can no longer be read as an image" in kit.error_of(reply, 404)
        assert client.get(f"/image/{frames[0]['id']}").status_code == 200  # the index has its thumbnail
