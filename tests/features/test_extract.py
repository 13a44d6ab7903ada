"""Extraction: each picture gets its own features, computed once, whatever happens in between."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.corpus import Corpus
from diptych.data.images import PictureFile
from diptych.errors import DataError, RecipeError
from diptych.features import extract as extraction
from diptych.features import picture_loader, proposals
from diptych.features.crops import Crops, fixed_crops
from diptych.features.extract import extract
from diptych.features.regions import Regions
from diptych.features.store import FeatureStoreSpec
from support.backbones import TinyBackbone
from support.extraction import CPU, expected_regions, expected_rows, extract_tiny, rows_of
from support.pictures import propose_from_colour, save_photo

CROPS_PER_PASS = 16
VIEWS = Regions(method="crops")
SEARCH = Regions(method="selective-search", count=3)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(extraction, "CROPS_ON_CPU", CROPS_PER_PASS)


@pytest.fixture
def pictures(tmp_path):
    return [save_photo(tmp_path / f"{number}.png", number) for number in range(40)]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "features"


@pytest.fixture
def _part_per_batch(monkeypatch):
    monkeypatch.setattr(extraction, "PART_SECONDS", 0)


@pytest.mark.parametrize("crops", ["1C", "10C"])
@pytest.mark.parametrize("regions", [None, Regions()], ids=["pooled", "grid"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_picture_has_its_own_features(pictures, folder, crops, regions, dtype):
    options = {"crops": crops, "regions": regions, "dtype": dtype}
    stored = extract_tiny(pictures, folder, **options)
    assert stored.features.shape == ((16, 6) if regions else (6,))
    assert stored.computed == 40
    assert stored.readable.tolist() == list(range(40))
    assert stored.skipped == stored.enlarged == {}
    tolerance = 1e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(rows_of(stored), expected_rows(pictures, **options), atol=tolerance)
    assert np.load(folder / "part-00000.npy").dtype == dtype


@pytest.mark.parametrize("crops", ["1C", "mirrored", "10C"])
def test_views_have_one_row_per_crop(pictures, folder, crops):
    backbone, seen = TinyBackbone(), Crops(name=crops)
    stored = extract_tiny(pictures, folder, backbone, crops=crops, regions=VIEWS)
    assert stored.features.shape == (seen.count, 6)
    assert stored.boxes is None
    squares = [torch.from_numpy(fixed_crops(picture.load(), seen, TinyBackbone.side)) for picture in pictures]
    expected = torch.stack([TinyBackbone()(each).detach() for each in squares])
    np.testing.assert_allclose(rows_of(stored), expected, atol=1e-6)
    np.testing.assert_allclose(rows_of(stored).mean(1), expected_rows(pictures, crops=crops), atol=1e-6)
    assert len(set(backbone.batches)) == 1  # the batch size does not depend on how many pictures are left
    assert backbone.batches[0] % seen.count == 0
    assert extract_tiny(pictures, folder, crops=crops, regions=VIEWS).computed == 0


@pytest.mark.parametrize("workers", [0, 3])
def test_views_do_not_depend_on_neighbours_threads_or_interruptions(pictures, folder, tmp_path, workers):
    options = {"crops": "mirrored", "regions": VIEWS}
    uninterrupted = rows_of(extract_tiny(pictures, folder, **options))
    extract_tiny(pictures[7:8], tmp_path / "other", **options)
    again = extract_tiny(pictures[::-1], tmp_path / "other", workers=workers, **options)
    np.testing.assert_array_equal(rows_of(again)[::-1], uninterrupted)


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_the_number_of_threads_changes_nothing(pictures, folder, workers):
    twice = [*pictures, *pictures[::-1]]
    stored = extract_tiny(twice, folder, workers=workers)
    assert stored.computed == 40
    np.testing.assert_array_equal(rows_of(stored), expected_rows(twice))


class Convolution(TinyBackbone):
    """A convolution whose sums may depend on the size of the batch; if dropout were active, it would show, too."""

    size = 8

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5), torch.nn.Dropout())

    def forward(self, pixels):
        return self.layers(pixels.float()).mean((2, 3))


def test_an_image_has_the_same_bits_in_any_company(pictures, folder):
    together = rows_of(extract_tiny(pictures, folder / "all", Convolution()))
    for count in (1, 3, 17):
        some = rows_of(extract_tiny(pictures[-count:], folder / str(count), Convolution()))
        np.testing.assert_array_equal(some, together[-count:])


class FixedSide(TinyBackbone):
    any_side = False


def test_crops_of_another_side_need_a_backbone_that_reads_them(pictures, folder):
    backbone, crops = TinyBackbone(), Crops(name="whole", side=64)
    spec = FeatureStoreSpec.for_backbone(backbone, crops)
    stored = extract(pictures[:3], backbone, spec, folder / "pooled", workers=0, device=CPU)
    squares = [torch.from_numpy(fixed_crops(picture.load(), crops, 64)) for picture in pictures[:3]]
    assert squares[0].shape == (1, 3, 64, 64)
    np.testing.assert_allclose(rows_of(stored), torch.cat([backbone(each).detach() for each in squares]), atol=1e-6)
    assert len(stored.enlarged) == 3
    grid = FeatureStoreSpec.for_backbone(backbone, crops, regions=Regions())
    stored = extract(pictures[:3], backbone, grid, folder / "grid", workers=0, device=CPU)
    assert stored.features.shape == (64, 6)
    cells = torch.cat([backbone.regions(each).detach() for each in squares])
    np.testing.assert_allclose(rows_of(stored), cells, atol=1e-6)
    with pytest.raises(RecipeError, match="side = 64: tiny reads squares of 32 only"):
        extract(pictures, FixedSide(), spec, folder / "fixed", workers=0, device=CPU)


@pytest.mark.usefixtures("_part_per_batch")
def test_proposals_are_stored_with_their_boxes(pictures, folder, monkeypatch):
    monkeypatch.setattr(extraction, "PART_ROWS", 16)
    monkeypatch.setattr(proposals, "proposer", propose_from_colour)
    broken = folder.parent / "broken.png"
    broken.write_bytes(b"nothing")
    some = [*pictures[:20], PictureFile(broken), *pictures[20:]]
    stored = extract_tiny(some, folder, crops="whole", regions=SEARCH)
    assert len(list(folder.glob("part-*.boxes.npy"))) == 3
    assert stored.readable.tolist() == [*range(20), *range(21, 41)]
    boxes = stored.boxes[np.arange(40)]
    propose = propose_from_colour(SEARCH)
    np.testing.assert_array_equal(boxes, [propose(picture.load()) for picture in pictures])
    assert len(np.unique(boxes[:, 1], axis=0)) > 30  # they differ from photo to photo
    expected = np.stack([expected_regions(*pair) for pair in zip(pictures, boxes, strict=True)])
    np.testing.assert_allclose(rows_of(stored), expected, atol=1e-6)
    assert not rows_of(stored)[:, 2].any()
    backbone = TinyBackbone()
    again = extract_tiny(some[::-1], folder, backbone, crops="whole", regions=SEARCH)
    assert backbone.shown == again.computed == 0
    np.testing.assert_array_equal(again.boxes[np.arange(40)], boxes[::-1])


def test_a_grid_has_no_stored_boxes(pictures, folder):
    assert extract_tiny(pictures[:2], folder, regions=Regions()).boxes is None
    assert not list(folder.glob("*.boxes.npy"))


def test_proposals_of_a_crop_are_refused_before_any_work(pictures, folder):
    with pytest.raises(RecipeError, match=r"selective-search needs crops = \"whole\", not '1C'"):
        extract_tiny(pictures, folder, crops="1C", regions=SEARCH)
    assert not folder.exists()


@pytest.mark.usefixtures("trusted_clock")
def test_a_second_run_computes_and_reads_nothing(pictures, folder, monkeypatch):
    first = extract_tiny(pictures, folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    backbone = TinyBackbone()
    monkeypatch.setattr(picture_loader, "file_hash", None)
    monkeypatch.setattr(picture_loader, "load_for_crops", None)
    again = extract_tiny(pictures, folder, backbone)
    assert backbone.shown == again.computed == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    np.testing.assert_array_equal(rows_of(again), rows_of(first))


def test_without_the_cache_files_are_hashed_but_not_decoded(pictures, folder, monkeypatch):
    extract_tiny(pictures, folder)
    (folder / "seen.json").unlink(missing_ok=True)
    monkeypatch.setattr(picture_loader, "load_for_crops", None)
    backbone = TinyBackbone()
    assert extract_tiny(pictures, folder, backbone).computed == 0
    assert backbone.shown == 0


@pytest.mark.usefixtures("trusted_clock")
def test_a_complete_store_can_be_read_while_it_is_locked(pictures, folder):
    extract_tiny(pictures, folder)
    with extraction.locked_folder(folder, DataError):
        assert extract_tiny(pictures, folder).computed == 0
        with pytest.raises(DataError, match=f"process {os.getpid()} is writing to it"):
            extract_tiny([*pictures, save_photo(folder.parent / "new.png", 99)], folder)


def test_pictures_without_a_readable_one_have_no_rows(folder, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    stored = extract_tiny([PictureFile(tmp_path / "a.png")], folder)
    assert rows_of(stored).shape == (0, 6)
    assert list(stored.skipped) == [0]
    assert rows_of(extract_tiny([], folder)).shape == (0, 6)


def test_a_store_with_another_spec_is_refused_before_any_work(pictures, folder):
    extract_tiny(pictures[:1], folder)
    backbone = TinyBackbone()
    with torch.no_grad():
        backbone.scale.mul_(2)
    with pytest.raises(DataError, match="weights of tiny"):
        extract_tiny(pictures, folder, backbone)
    assert backbone.shown == 0
    with pytest.raises(DataError, match="is a file; name a folder"):
        extract_tiny(pictures, pictures[0].path)


def stop_after(count, error):
    def progress(done, total):
        assert total == 40
        if done >= count:
            raise error

    return progress


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=["Ctrl-C", "memory"])
def test_interrupted_work_is_kept_and_continued(pictures, folder, error):
    with pytest.raises(type(error)):
        extract_tiny(pictures, folder, progress=stop_after(16, error))
    assert sum(len(np.load(part)) for part in folder.glob("new-0-*.npy")) == 16
    stored = extract_tiny(pictures, folder)
    assert stored.computed == 24
    uninterrupted = extract_tiny(pictures, folder.with_name("uninterrupted"))
    np.testing.assert_array_equal(rows_of(stored), rows_of(uninterrupted))


def test_progress_ends_with_the_total(pictures, folder):
    calls = []
    extract_tiny(pictures, folder, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (40, 40)


@pytest.mark.parametrize(("rows", "parts"), [(16, 3), (17, 3), (20, 2), (1000, 1)])
def test_parts_are_full(pictures, folder, monkeypatch, rows, parts):
    monkeypatch.setattr(extraction, "PART_ROWS", rows)
    np.testing.assert_array_equal(rows_of(extract_tiny(pictures, folder)), expected_rows(pictures))
    assert len(list(folder.glob("part-*.npy"))) == parts


@pytest.mark.usefixtures("_part_per_batch")
@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_a_full_disk_keeps_what_was_written(pictures, folder, monkeypatch, fails_at):
    calls, sync = [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) >= fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            extract_tiny(pictures, folder)
    assert not list(folder.glob(".*.tmp"))
    stored = extract_tiny(pictures, folder)
    # The writes are about.json, the rows and the keys of the first part, and the rows of the second part.
    assert stored.computed == (24 if fails_at == 4 else 40)
    np.testing.assert_array_equal(rows_of(stored), expected_rows(pictures))


KILLED = """
    import os, pathlib, signal, sys

    from support.extraction import extract_tiny

    from diptych.data.images import PictureFile
    from diptych.features import extract, hashes

    root, kills = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    extract.PART_SECONDS = 0
    extract.CROPS_ON_CPU = int(sys.argv[3])
    hashes.CLOCK_RESOLUTION = 1 << 62  # the cache is not written in between
    pictures = [PictureFile(root / f"{number}.png") for number in range(40)]
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
            extract_tiny(pictures, root / f"killed-{kill_at}", workers=0)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""


def test_a_process_that_is_killed_loses_at_most_the_current_part(pictures, tmp_path):
    kills = 9  # at about.json, then at the rows and the keys of three new parts, and of the part that they become
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), str(kills), str(CROPS_PER_PASS)]
    paths = [str(Path(__file__).parents[1]), *sys.path]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    for kill_at in range(1, kills + 1):
        folder = tmp_path / f"killed-{kill_at}"
        assert list(folder.glob(".*.tmp"))  # it was killed during a write
        finished = [0, 0, 0, 0, 16, 16, 32, 32, 40, 40][kill_at]
        stored = extract_tiny(pictures, folder)
        assert stored.computed == 40 - finished
        assert not list(folder.glob("new-*"))
        assert len(np.load(folder / "part-00000.npy")) == len(list(stored.readable)) == 40
        assert finished == 40 or not list(folder.glob(".*.tmp"))
        np.testing.assert_array_equal(rows_of(stored), expected_rows(pictures))


def test_pictures_in_memory_are_known_by_their_pixels(folder):
    def corpus():
        noise = np.random.default_rng(0).integers(0, 256, (5, 40, 50, 3), np.uint8)
        return Corpus.from_pairs([*map(Image.fromarray, noise[:3]), *noise[3:]], list("abcde"))

    first = extract_tiny(corpus().pictures, folder)
    assert first.computed == 5
    np.testing.assert_array_equal(rows_of(first), expected_rows(corpus().pictures))
    again = extract_tiny(corpus().pictures[::-1], folder)
    assert again.computed == 0
    np.testing.assert_array_equal(rows_of(again), rows_of(first)[::-1])
