import os
import time

import pytest
from PIL import Image

from diptych.features import hashes
from diptych.features.hashes import HashCache, pixels_hash, stamp
from diptych.files import file_hash


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"first content")
    return path


@pytest.fixture
def later(monkeypatch):
    """The files of a test are old: no clock could give two edits of them the same time."""
    monkeypatch.setattr(hashes, "CLOCK_RESOLUTION", -(10**12))


def test_pixels_of_another_shape_are_another_image():
    images = [Image.new("RGB", (4, 2)), Image.new("RGB", (2, 4)), Image.new("RGB", (4, 2), (0, 0, 1))]
    assert len({pixels_hash(image) for image in images}) == 3
    assert pixels_hash(images[0]) == pixels_hash(Image.new("RGB", (4, 2)))


def test_what_was_seen_is_known_by_the_next_process(tmp_path, file, later):
    seen = HashCache(tmp_path / "seen.json")
    assert seen.get(file) is None
    seen.add(file, stamp(file), file_hash(file))
    seen.save()
    assert HashCache(tmp_path / "seen.json").get(file) == file_hash(file)
    file.unlink()
    assert HashCache(tmp_path / "seen.json").get(file) is None


def test_paths_are_known_wherever_one_stands(tmp_path, file, later, monkeypatch):
    seen = HashCache(tmp_path / "seen.json")
    seen.add(file, stamp(file), "digest")
    monkeypatch.chdir(tmp_path)
    assert seen.get(file.relative_to(tmp_path)) == "digest"


def edit_in_place(file):
    file.write_bytes(b"other content")  # as long as the first


def edit_and_restore_the_time(file):
    before = file.stat()
    file.write_bytes(b"other content")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_another(file):
    before = file.stat()
    other = file.with_name("other.jpg")
    other.write_bytes(b"other content")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


def make_longer(file):
    file.write_bytes(b"first content and more")


@pytest.mark.parametrize("change", [edit_in_place, edit_and_restore_the_time, replace_by_another, make_longer])
def test_a_changed_file_is_not_known(tmp_path, file, later, change):
    seen = HashCache(tmp_path / "seen.json")
    seen.add(file, stamp(file), file_hash(file))
    time.sleep(0.02)  # a clock tick of the kernel
    change(file)
    assert seen.get(file) is None


def test_a_file_that_was_just_written_is_not_trusted(tmp_path, file):
    seen = HashCache(tmp_path / "seen.json")
    seen.add(file, stamp(file), file_hash(file))
    assert seen.get(file) is None
    seen.save()
    assert not (tmp_path / "seen.json").exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"a": 1}', '{"a": [1, 2]}', '{"a": [[], {}, null, 1, 2], "b": "x"}', "\xff"]
)
def test_a_damaged_cache_is_an_empty_one(tmp_path, file, later, content):
    (tmp_path / "seen.json").write_text(content, encoding="latin-1")
    seen = HashCache(tmp_path / "seen.json")
    assert seen.get(file) is None
    seen.add(file, stamp(file), "digest")
    seen.save()
    assert HashCache(tmp_path / "seen.json").get(file) == "digest"


def test_saving_often_writes_seldom(tmp_path, file, later):
    seen = HashCache(tmp_path / "seen.json")
    for number in range(20):
        seen.add(file.with_name(str(number)), stamp(file), "digest")
    seen.save(force=False)
    written = (tmp_path / "seen.json").read_bytes()
    seen.add(file, stamp(file), "digest")
    seen.save(force=False)
    assert (tmp_path / "seen.json").read_bytes() == written
    seen.save()
    assert (tmp_path / "seen.json").read_bytes() != written


def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path, file, later, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    seen = HashCache(tmp_path / "seen.json")
    seen.add(file, stamp(file), "digest")
    monkeypatch.setattr(os, "fsync", full)
    seen.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photo.jpg"]
