"""One pass over a source; what it does to the index is tested with sync."""

import io
import sys
import threading

import pillow_heif
import pytest
from PIL import Image

from diptych.data import file_kinds
from diptych.index import reading, update
from diptych.index.sources.folder import FolderSource
from diptych.index.update import Update
from support.one_pass import ColourModel, make_store, run


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(6):
        Image.new("RGB", (8, 8), (40 + number, 0, 0)).save(folder / f"{number}.png")
    (folder / "0.txt").write_text("a dog\na cat")
    return folder


@pytest.fixture
def store(tmp_path, folder):
    store = make_store(tmp_path / "x.diptych", folder)
    yield store
    store.close()


def test_new_images_and_texts_are_encoded_once(store, folder):
    done = []
    first = run(store, folder, progress=lambda *numbers: done.append(numbers))
    assert (first.encoded, first.texts_encoded, first.removed) == (6, 2, 0)
    assert done == [(number, 6) for number in range(1, 7)]
    generation = store.generation

    def never():
        raise AssertionError("the model was opened")

    again = Update(store, store.spec, FolderSource(folder), FolderSource(folder).listing(), never, workers=0)
    again.run(threading.Event(), None)
    assert (again.encoded, again.texts_encoded) == (0, 0)
    assert store.generation == generation
    assert store.meta("storage_cost")["of"] == 6


def test_equal_images_are_encoded_once(store, folder):
    (folder / "copy.png").write_bytes((folder / "0.png").read_bytes())
    assert run(store, folder).encoded == 6
    assert store.counts()["image"] == 7


def test_an_interrupted_pass_writes_what_is_finished(store, folder):
    interrupted = threading.Event()
    first = run(store, folder, interrupted=interrupted, progress=lambda done, _: done == 2 and interrupted.set())
    assert first.interrupted
    assert store.counts()["image"] == 2
    assert store.meta("unfinished")
    second = run(store, folder)
    assert (second.encoded, second.interrupted, store.counts()["image"]) == (4, False, 6)
    assert not store.meta("unfinished")


def test_a_batch_is_written_at_the_latest_after_so_many_images(store, folder, monkeypatch):
    monkeypatch.setattr(update, "IMAGES_PER_TRANSACTION", 2)
    before, model = store.generation, ColourModel()
    run(store, folder, model)
    assert store.generation - before >= 3
    assert model.batches == [2, 2, 2]


def test_an_encoding_that_is_not_finite_is_a_problem_of_its_image(store, folder):
    Image.new("RGB", (8, 8), (66, 0, 0)).save(folder / "bad.png")
    result = run(store, folder)
    assert result.encoded == 6
    assert store.problems() == [("bad.png", "the model's encoding of it is not finite")]
    assert run(store, folder).encoded == 0  # it is not tried again


def test_a_file_above_the_limit_is_not_read(store, folder, monkeypatch):
    monkeypatch.setattr(reading, "LARGEST_FILE", 10)
    assert run(store, folder).encoded == 0
    assert all("more than the limit of 10; save a smaller copy" in reason for _, reason in store.problems())


def test_the_camera_and_the_place_of_a_photo_are_stored(store, folder):
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Apple", "iPhone 12 mini"
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 8.0, 15.0), 3: "W", 4: (11.0, 34.0, 30.0)})
    Image.new("RGB", (8, 8), (99, 0, 0)).save(folder / "phone.jpg", exif=exif)
    run(store, folder)
    assert store.database.rows("SELECT camera, latitude, longitude FROM details") == [
        ("Apple iPhone 12 mini", 48.1375, -11.575)
    ]


def test_files_that_need_a_package_are_one_problem_per_ending_until_it_is_installed(store, folder, monkeypatch):
    for name in ("a.heic", "b.HEIC", "c.hif"):
        content = io.BytesIO()
        pillow_heif.from_pillow(Image.new("RGB", (64, 64), (len(name), 0, 0))).save(content)
        (folder / name).write_bytes(content.getvalue())
    (folder / "really.jpg").write_bytes((folder / "a.heic").read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(file_kinds, "_is_installed", lambda module: False)
        patch.setitem(sys.modules, "pillow_heif", None)
        assert run(store, folder).encoded == 6
        command = "pip install 'diptych[heic]'"
        assert store.problems() == [
            ("*.heic", f"2 files: {command}"),
            ("*.hif", f"1 file: {command}"),
            ("really.jpg", f"a HEIC photo; to read it: {command}"),
        ]
        generation = store.generation
        needed = run(store, folder).needs_packages
        assert needed == {"*.heic": f"2 files: {command}", "*.hif": f"1 file: {command}"}
        assert store.problems()[0] == ("*.heic", f"2 files: {command}")
    assert store.generation > generation  # the renamed one is tried again
    update = run(store, folder)
    assert (update.encoded, update.needs_packages) == (2, {})  # two have the same colour
    assert store.problems() == []
    assert store.counts()["image"] == 10
