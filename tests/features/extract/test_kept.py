"""What is there is kept: second runs, renamed and damaged photos, interruptions, a full disk, kill -9."""

import errno
import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.data.images import PictureFile
from diptych.errors import DataError, ImageError
from diptych.features import extract as extraction
from diptych.features.crops import Crops
from diptych.features.store import FeatureStore, FeatureStoreSpec


def test_a_second_run_computes_and_reads_nothing(pictures, folder, later, monkeypatch, extracted, values, tiny):
    first = extracted(pictures, folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    network = tiny()
    monkeypatch.setattr(extraction, "file_hash", None)
    monkeypatch.setattr(extraction, "decode", None)
    again = extracted(pictures, folder, network)
    assert network.shown == again.computed == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    np.testing.assert_array_equal(values(again), values(first))


def test_without_the_cache_files_are_read_but_not_decoded(pictures, folder, monkeypatch, extracted, tiny):
    extracted(pictures, folder)
    (folder / "seen.json").unlink(missing_ok=True)
    monkeypatch.setattr(extraction, "decode", None)
    network = tiny()
    assert extracted(pictures, folder, network).computed == 0
    assert network.shown == 0


def test_a_full_store_can_be_read_while_another_holds_it(pictures, folder, later, extracted, photo):
    extracted(pictures, folder)
    with extraction.locked_folder(folder, DataError):
        assert extracted(pictures, folder).computed == 0
        with pytest.raises(DataError, match=f"process {os.getpid()} is writing here"):
            extracted([*pictures, photo(folder.parent / "new.png", 99)], folder)


def test_a_file_that_changes_while_it_is_read_is_left_for_another_time(
    pictures, folder, tmp_path, monkeypatch, extracted, expected, values, photo
):
    plain = extraction.decode

    def decode(path, size):
        if path.name == "2.png":
            photo(path, 77)
        return plain(path, size)

    with monkeypatch.context() as patch:
        patch.setattr(extraction, "decode", decode)
        stored = extracted(pictures, folder)
    assert stored.skipped == {2: f"{tmp_path / '2.png'}: changed while it was read; run the command again"}
    stored = extracted(pictures, folder)
    assert stored.skipped == {}
    assert stored.computed == 1
    np.testing.assert_array_equal(values(stored), expected(pictures))


def test_renamed_equal_and_changed_photos(pictures, folder, later, tmp_path, extracted, expected, values, photo):
    first = values(extracted(pictures, folder))
    (tmp_path / "5.png").rename(tmp_path / "renamed.png")
    moved = [*pictures[:5], PictureFile(tmp_path / "renamed.png"), *pictures[6:]]
    stored = extracted(moved, folder)
    assert stored.computed == 0
    np.testing.assert_array_equal(values(stored), first)

    (tmp_path / "copy.png").write_bytes((tmp_path / "7.png").read_bytes())
    stored = extracted([PictureFile(tmp_path / "copy.png"), *moved], folder)
    assert stored.computed == 0
    np.testing.assert_array_equal(values(stored)[0], first[7])

    photo(tmp_path / "7.png", 1234)
    stored = extracted(moved, folder)
    assert stored.computed == 1
    np.testing.assert_array_equal(values(stored), expected(moved))
    assert not np.array_equal(values(stored)[7], first[7])
    np.testing.assert_array_equal(np.delete(values(stored), 7, 0), np.delete(first, 7, 0))


def test_an_edit_that_keeps_size_and_time_is_seen(folder, tmp_path, extracted, expected, values):
    """Two edits within a tick of the clock: what was just written is hashed again, not trusted."""
    path = tmp_path / "a.ppm"
    first, second = (f"P6 20 16 255\n{letter * 960}".encode() for letter in "ab")
    path.write_bytes(first)
    when = path.stat().st_mtime_ns
    extracted([PictureFile(path)], folder)
    path.write_bytes(second)
    os.utime(path, ns=(when, when))
    stored = extracted([PictureFile(path)], folder)
    assert stored.computed == 1
    np.testing.assert_array_equal(values(stored), expected([PictureFile(path)]))


def test_unreadable_images_are_left_out_with_their_reason(
    pictures, folder, tmp_path, later, extracted, expected, values, photo, tiny
):
    (tmp_path / "3.png").write_bytes((tmp_path / "3.png").read_bytes()[:300])
    (tmp_path / "4.png").write_bytes(b"no image at all")
    (tmp_path / "5.png").unlink()
    (tmp_path / "6.png").unlink()
    (tmp_path / "6.png").mkdir()
    (tmp_path / "7.png").write_bytes((tmp_path / "4.png").read_bytes())
    reasons = {}
    for image in (3, 4, 5, 6, 7):
        with pytest.raises(ImageError) as raised:
            pictures[image].load()
        reasons[image] = str(raised.value)
    good = [image for image in range(40) if image not in reasons]
    for wanted in (35, 0):
        network = tiny()
        stored = extracted(pictures, folder, network)
        assert stored.skipped == reasons
        assert stored.readable.tolist() == good
        assert stored.computed == wanted
        assert (network.shown > 0) == (wanted > 0)
        np.testing.assert_array_equal(values(stored), expected([pictures[image] for image in good]))
    photo(tmp_path / "5.png", 5)
    assert 5 not in extracted(pictures, folder).skipped


def test_a_damaged_image_is_tried_once(folder, tmp_path, monkeypatch, extracted):
    bad = PictureFile(tmp_path / "bad.png")
    bad.path.write_bytes(b"no image at all")
    first = extracted([bad], folder)
    monkeypatch.setattr(extraction, "decode", None)
    moved = PictureFile(bad.path.rename(tmp_path / "moved.png"))
    again = extracted([moved], folder)
    assert again.skipped[0] == first.skipped[0].replace("bad.png", "moved.png")


def test_nothing_readable_is_no_row(folder, tmp_path, extracted, values):
    (tmp_path / "a.png").write_bytes(b"no image")
    stored = extracted([PictureFile(tmp_path / "a.png")], folder)
    assert values(stored).shape == (0, 3)
    assert list(stored.skipped) == [0]
    assert values(extracted([], folder)).shape == (0, 3)


def test_a_store_that_was_made_otherwise_is_refused_before_any_work(pictures, folder, extracted, tiny):
    extracted(pictures[:1], folder)
    network = tiny()
    with torch.no_grad():
        network.scale.mul_(2)
    with pytest.raises(DataError, match="weights of tiny"):
        extracted(pictures, folder, network)
    assert network.shown == 0
    with pytest.raises(DataError, match="is a file; name a folder"):
        extracted(pictures, pictures[0].path)


def content(kind):
    """Bytes of an image by a number, of damaged ones by a negative number."""
    if kind < 0:
        return b"damaged" * -kind
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (kind * 40, 255 - kind * 30, kind)).save(buffer, "png")
    return buffer.getvalue()


@settings(max_examples=20)
@given(
    runs=st.lists(st.lists(st.integers(-2, 5), max_size=20), min_size=1, max_size=3),
    missing=st.sets(st.integers(0, 19), max_size=3),
    workers=st.integers(0, 3),
)
def test_nobody_gets_another_ones_features(tmp_path_factory, runs, missing, workers, extracted, expected, values, tiny):
    """Any order, equal images, skipped neighbours, earlier runs over other images."""
    root = tmp_path_factory.mktemp("orders")
    for number, kinds in enumerate(runs):
        pictures = [PictureFile(root / f"{number}-{place}") for place in range(len(kinds))]
        for place, kind in enumerate(kinds):
            if place not in missing:
                pictures[place].path.write_bytes(content(kind))
        stored = extracted(pictures, root / "features", workers=workers)
        good = [place for place, kind in enumerate(kinds) if kind >= 0 and place not in missing]
        assert stored.readable.tolist() == good
        assert sorted(stored.skipped) == [place for place in range(len(kinds)) if place not in good]
        assert all(str(pictures[place].path) in reason for place, reason in stored.skipped.items())
        if good:
            np.testing.assert_array_equal(values(stored), expected([pictures[place] for place in good]))
    making = FeatureStoreSpec.for_backbone("tiny", tiny(), Crops())
    distinct = {kind for kinds in runs for place, kind in enumerate(kinds) if kind >= 0 and place not in missing}
    assert len(FeatureStore.open(root / "features", making)) == len(distinct)


def stop_after(count, error):
    def progress(done, total):
        assert total == 40
        if done >= count:
            raise error

    return progress


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=["Ctrl-C", "memory"])
def test_interrupted_work_is_kept_and_gone_on_with(pictures, folder, error, extracted, values):
    with pytest.raises(type(error)):
        extracted(pictures, folder, progress=stop_after(16, error))
    assert sum(len(np.load(part)) for part in folder.glob("part-*.npy")) == 16
    stored = extracted(pictures, folder)
    assert stored.computed == 24
    whole = extracted(pictures, folder.with_name("whole"))
    np.testing.assert_array_equal(values(stored), values(whole))


def test_the_end_is_told(pictures, folder, extracted):
    told = []
    extracted(pictures, folder, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (40, 40)


@pytest.mark.parametrize(("rows", "parts"), [(16, 3), (17, 2), (1000, 1)])
def test_parts_end_when_they_are_full(pictures, folder, monkeypatch, rows, parts, extracted, expected, values):
    monkeypatch.setattr(extraction, "PART_ROWS", rows)
    np.testing.assert_array_equal(values(extracted(pictures, folder)), expected(pictures))
    assert len(list(folder.glob("part-*.npy"))) == parts


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_a_full_disk_keeps_what_was_written(
    pictures, folder, part_a_batch, monkeypatch, fails_at, extracted, expected, values
):
    calls, sync = [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) >= fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            extracted(pictures, folder)
    assert not list(folder.glob(".*.tmp"))
    stored = extracted(pictures, folder)
    assert stored.computed == (24 if fails_at == 4 else 40)  # about, rows, images of the first part, rows of the second
    np.testing.assert_array_equal(values(stored), expected(pictures))


KILLED = """
    import importlib.util, os, pathlib, signal, sys

    spec = importlib.util.spec_from_file_location("extracting", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    root, kills = pathlib.Path(sys.argv[2]), int(sys.argv[3])
    module.extraction.PART_SECONDS = 0
    module.extraction.SQUARES_ON_CPU = module.AT_ONCE
    module.hashes.CLOCK_RESOLUTION = 1 << 62  # no writing of the cache in between
    pictures = [module.PictureFile(root / f"{number}.png") for number in range(40)]
    for kill_at in range(1, kills + 1):
        child = os.fork()
        if child == 0:
            calls, sync = [], os.fsync

            def killing(descriptor):
                sync(descriptor)
                calls.append(descriptor)
                if len(calls) == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            os.fsync = killing
            module.run(pictures, root / f"killed-{kill_at}", workers=0)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""


def test_killed_at_any_write_at_most_the_part_in_the_making_is_lost(pictures, tmp_path, extracted, expected, values):
    kills = 7  # about.json, then rows and images of each of three parts
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(KILLED),
        str(Path(__file__).with_name("conftest.py")),
        str(tmp_path),
        str(kills),
    ]
    subprocess.run(command, check=True)
    for kill_at in range(1, kills + 1):
        folder = tmp_path / f"killed-{kill_at}"
        assert list(folder.glob(".*.tmp"))  # it was killed in the middle
        finished = [0, 0, 0, 0, 16, 16, 32, 32][kill_at]
        stored = extracted(pictures, folder)
        assert stored.computed == 40 - finished
        assert not list(folder.glob(".*.tmp"))
        np.testing.assert_array_equal(values(stored), expected(pictures))
