import os
import time

import pytest
from PIL import Image

from diptych.features.hashes import HashCache, pixels_hash, stamp
from diptych.files import file_hash


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"first content")
    return path


def test_the_hash_of_pixels_depends_on_the_size():
    images = [Image.new("RGB", (4, 2)), Image.new("RGB", (2, 4)), Image.new("RGB", (4, 2), (0, 0, 1))]
    assert len({pixels_hash(image) for image in images}) == 3
    assert pixels_hash(images[0]) == pixels_hash(Image.new("RGB", (4, 2)))


@pytest.mark.usefixtures("trusted_clock")
def test_a_saved_cache_is_read_by_the_next_process(tmp_path, file):
    cache = HashCache(tmp_path / "hashes.json")
    assert cache.get(file) is None
    cache.add(file, stamp(file), file_hash(file))
    cache.save()
    assert HashCache(tmp_path / "hashes.json").get(file) == file_hash(file)
    file.unlink()
    assert HashCache(tmp_path / "hashes.json").get(file) is None


@pytest.mark.usefixtures("trusted_clock")
def test_paths_do_not_depend_on_the_working_folder(tmp_path, file, monkeypatch):
    cache = HashCache(tmp_path / "hashes.json")
    cache.add(file, stamp(file), "digest")
    monkeypatch.chdir(tmp_path)
    assert cache.get(file.relative_to(tmp_path)) == "digest"


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
@pytest.mark.usefixtures("trusted_clock")
def test_a_changed_file_is_not_in_the_cache(tmp_path, file, change):
    cache = HashCache(tmp_path / "hashes.json")
    cache.add(file, stamp(file), file_hash(file))
    time.sleep(0.02)  # a clock tick of the kernel
    change(file)
    assert cache.get(file) is None


def test_a_file_that_was_just_written_is_not_cached(tmp_path, file):
    cache = HashCache(tmp_path / "hashes.json")
    cache.add(file, stamp(file), file_hash(file))
    assert cache.get(file) is None
    cache.save()
    assert not (tmp_path / "hashes.json").exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"a": 1}', '{"a": [1, 2]}', '{"a": [[], {}, null, 1, 2], "b": "x"}', "\xff"]
)
@pytest.mark.usefixtures("trusted_clock")
def test_a_damaged_cache_counts_as_empty(tmp_path, file, content):
    (tmp_path / "hashes.json").write_text(content, encoding="latin-1")
    cache = HashCache(tmp_path / "hashes.json")
    assert cache.get(file) is None
    cache.add(file, stamp(file), "digest")
    cache.save()
    assert HashCache(tmp_path / "hashes.json").get(file) == "digest"


@pytest.mark.usefixtures("trusted_clock")
def test_saving_without_force_waits_for_many_new_entries(tmp_path, file):
    cache = HashCache(tmp_path / "hashes.json")
    for number in range(20):
        cache.add(file.with_name(str(number)), stamp(file), "digest")
    cache.save(force=False)
    written = (tmp_path / "hashes.json").read_bytes()
    cache.add(file, stamp(file), "digest")
    cache.save(force=False)
    assert (tmp_path / "hashes.json").read_bytes() == written
    cache.save()
    assert (tmp_path / "hashes.json").read_bytes() != written


@pytest.mark.usefixtures("trusted_clock")
def test_a_cache_that_cannot_be_written_is_ignored(tmp_path, file, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    cache = HashCache(tmp_path / "hashes.json")
    cache.add(file, stamp(file), "digest")
    monkeypatch.setattr(os, "fsync", full)
    cache.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photo.jpg"]


@pytest.mark.usefixtures("trusted_clock")
def test_ranks_write_files_of_their_own_which_the_first_one_joins(tmp_path, file):
    other = tmp_path / "other.jpg"
    other.write_bytes(b"other")
    caches = [HashCache(tmp_path / "hashes.json", rank) for rank in (0, 1)]
    for cache, path in zip(caches, (file, other), strict=True):
        cache.add(path, stamp(path), file_hash(path))
        cache.save()
    assert HashCache(tmp_path / "hashes.json", 2).get(other) == file_hash(other)
    caches[0].join()
    assert [path.name for path in tmp_path.glob("*.json")] == ["hashes.json"]
    joined = HashCache(tmp_path / "hashes.json")
    assert [joined.get(path) for path in (file, other)] == [file_hash(file), file_hash(other)]
