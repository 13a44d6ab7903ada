import threading
from types import SimpleNamespace

import pytest
from PIL import Image

from diptych.data.images import DecodedPicture, PictureFile
from diptych.errors import DataError
from diptych.index import word_reading
from diptych.index.word_reading import WordReading


class Source:
    """Pictures of one pixel by their keys, of which some are missing or damaged."""

    def __init__(self, missing=(), damaged=None):
        self.missing, self.damaged = missing, damaged

    def picture(self, key):
        if key in self.missing:
            raise DataError("gone")
        if key.endswith("damaged"):
            return PictureFile(self.damaged)
        return DecodedPicture(Image.new("RGB", (1, 1)))


class Reader:
    def __init__(self):
        self.count = 0

    def read(self, photo):
        self.count += 1
        return f"word{self.count}"


def reading(store, source, reader=None):
    return WordReading(store, source, reader or Reader(), 0)


def test_every_content_is_read_once(kit, store, tmp_path):
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(b"no image")
    kit.put(store, ["n0", "n1", "damaged", "n1"])
    seen, reader = [], Reader()
    source = Source(missing=["a/0-n0"], damaged=damaged)
    first = reading(store, source, reader)
    assert first.run(threading.Event(), lambda *done: seen.append(done))
    assert (first.read, reader.count, seen) == (2, 1, [(1, 3), (2, 3), (3, 3)])
    assert len(store.by_words("word1", every=True)[0]) == 2
    assert [key for _, key, _ in store.unread_pictures()] == ["a/0-n0"]  # which may be back the next time
    assert reading(store, Source(), reader).run(threading.Event())
    assert (reader.count, store.unread_pictures()) == (2, [])


def test_an_interrupted_reading_keeps_what_was_read_and_continues(kit, store):
    kit.put(store, ["n0", "n1", "n2"])
    interrupted, reader = threading.Event(), Reader()
    first = reading(store, Source(), reader)
    assert not first.run(interrupted, lambda *_: interrupted.set())
    assert (first.read, len(store.unread_pictures())) == (1, 2)
    assert reading(store, Source(), reader).run(threading.Event())
    assert reader.count == 3


def test_a_failing_reader_is_not_hidden(kit, store):
    kit.put(store, ["n0"])
    reader = SimpleNamespace(read=lambda photo: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reading(store, Source(), reader).run(threading.Event())


def test_a_frame_of_a_video_is_read_at_its_moment(monkeypatch, tmp_path):
    asked, found = [], []
    frame = Image.new("RGB", (1, 1))
    monkeypatch.setattr(word_reading, "frame_at", lambda *arguments: asked.append(arguments) or frame)
    store = SimpleNamespace(unread_pictures=lambda: [(7, "trips/clip.mp4#12.5", 12.5)], add_picture_words=found.extend)
    source = SimpleNamespace(picture=lambda key: PictureFile(tmp_path / key))
    reader = SimpleNamespace(read=lambda photo: "exit" if photo is frame else "")
    assert reading(store, source, reader).run(threading.Event())
    assert asked == [(tmp_path / "trips/clip.mp4", 12.5, word_reading.DECODED_FOR)]
    assert found == [(7, "exit")]
