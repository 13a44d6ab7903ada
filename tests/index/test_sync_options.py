"""The quality of an index, and words in pictures: options that an index remembers."""

import os
import signal

import pytest
from PIL import Image

from diptych.errors import IndexFileError
from diptych.index.sqlite.store import Store
from diptych.index.sync import rebuild, sync
from support.photo_folders import FakeModel, put


class Views(FakeModel):
    """A model that knows two qualities, whose vectors differ."""

    quality = "best"

    def with_quality(self, quality):
        other = Views()
        other.quality = quality
        return other

    def encodings(self, contents):
        return super().encodings([content + self.quality.encode() for content in contents])


def test_a_new_index_is_fast_and_keeps_its_quality(tmp_path):
    photos, file = tmp_path / "photos", tmp_path / "photos.diptych"
    photos.mkdir()
    Image.new("RGB", (8, 8), "red").save(photos / "red.png")

    def vectors():
        store = Store.open(file)
        try:
            return store.spec.quality, store.vectors("image")[1].tolist()
        finally:
            store.close()

    sync(Views(), str(photos), file)
    fast = vectors()
    assert fast[0] == "fast"
    assert sync(Views(), str(photos), file).encoded == 0
    with pytest.raises(IndexFileError, match=r"has the quality 'fast'; to change that: .* --quality best --fresh$"):
        sync(Views(), str(photos), file, quality="best")
    sync(Views(), str(photos), file, quality="best", fresh=True)
    best = vectors()
    assert best[0] == "best"
    assert best[1] != fast[1]
    Image.new("RGB", (8, 8), "blue").save(photos / "blue.png")
    assert sync(Views(), str(photos), file).encoded == 1
    assert vectors()[0] == "best"
    rebuild(file, Views())
    assert vectors()[0] == "best"


def test_a_model_that_knows_one_quality_makes_an_index_of_that(tmp_path):
    photos, file = tmp_path / "photos", tmp_path / "photos.diptych"
    photos.mkdir()
    Image.new("RGB", (8, 8), "red").save(photos / "red.png")
    for quality in ("fast", None, "best"):
        sync(FakeModel(), str(photos), file, quality=quality)
    store = Store.open(file)
    assert store.spec.quality == "best"
    store.close()


class WordReader:
    """Finds one word in every picture, its size."""

    count = 0

    def read(self, photo):
        type(self).count += 1
        return f"{photo.width}x{photo.height} receipt"


def test_words_in_pictures_are_read_once_and_remembered(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("diptych.index.word_reading.RapidTextReader", WordReader)
    monkeypatch.setattr(WordReader, "count", 0)
    index, model = tmp_path / "index", FakeModel()
    assert sync(model, str(photos), index).words_read == 0
    later = sync(model, str(photos), index, ocr=True)
    assert (later.encoded, later.words_read, WordReader.count) == (0, 9, 9)
    put(photos / "new.png", 77)
    assert sync(model, str(photos), index).words_read == 1
    assert sync(model, str(photos), index).words_read == 0
    store = Store.open(index)
    assert len(store.by_words("receipt", every=True)[0]) == 10
    store.close()
    (photos / "new.png").rename(photos / "newer.png")
    sync(model, str(photos), index)
    assert rebuild(index, model).words_read == 10
    assert sync(model, str(photos), index, fresh=True).words_read == 10
    put(photos / "last.png", 78)
    assert sync(model, str(photos), index, ocr=False).words_read == 0
    assert sync(model, str(photos), index).words_read == 0


def test_an_interrupted_reading_of_words_continues(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("diptych.index.word_reading.RapidTextReader", WordReader)
    calls = iter(range(99))

    def interrupt(*_):
        if next(calls) == 12:
            os.kill(os.getpid(), signal.SIGINT)

    first = sync(FakeModel(), str(photos), tmp_path / "index", workers=0, ocr=True, progress=interrupt)
    assert (first.interrupted, first.encoded, first.words_read) == (True, 9, 4)
    assert sync(FakeModel(), str(photos), tmp_path / "index").words_read == 5
