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
from diptych.data.scenes import make_scenes
from diptych.errors import DataError, ImageError, RecipeError
from diptych.features import extract as extraction
from diptych.features import identity, places
from diptych.features.backbone import Backbone
from diptych.features.crops import Crops, fixed_crops
from diptych.features.extract import extract
from diptych.features.regions import Regions
from diptych.features.roi_align import roi_align
from diptych.features.store import FeatureStore, Making

CPU = torch.device("cpu")
AT_ONCE = 16


class Tiny(Backbone):
    """Sees squares of 14 pixels as four cells of three colours, and counts what it is shown."""

    side, size, grid = 14, 3, (4, 3)

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))
        self.shown = 0

    def regions(self, pixels):
        self.shown += len(pixels)
        cells = pixels.float().unfold(2, 7, 7).unfold(3, 7, 7).mean((4, 5))  # (images, 3, 2, 2)
        return (cells * self.scale).flatten(2).transpose(1, 2)

    def forward(self, pixels):
        return self.regions(pixels).mean(1)


class Counting(Tiny):
    """Writes down how many squares it is shown at once."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def forward(self, pixels):
        self.batches.append(len(pixels))
        return super().forward(pixels)


APART = Regions(method="crops")


def photo(path, seed, size=(20, 16)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path, "png")
    return PictureFile(path)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    monkeypatch.setattr(extraction, "SQUARES_ON_CPU", AT_ONCE)


@pytest.fixture
def pictures(tmp_path):
    return [photo(tmp_path / f"{number}.png", number) for number in range(40)]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "features"


@pytest.fixture
def later(monkeypatch):
    monkeypatch.setattr(identity, "QUIET", -(10**12))


@pytest.fixture
def part_a_batch(monkeypatch):
    monkeypatch.setattr(extraction, "PART_SECONDS", 0)


def run(pictures, folder, backbone=None, *, crops="1C", regions=None, dtype="float32", workers=2, watch=None):
    backbone = backbone or Tiny()
    making = Making.of("tiny", backbone, Crops(name=crops), regions=regions, dtype=dtype)
    return extract(pictures, backbone, making, folder, workers=workers, device=CPU, watch=watch)


def expected(pictures, *, crops="1C", regions=None, dtype="float32"):
    """Each picture alone."""
    network = Tiny()
    rows = []
    for picture in pictures:
        squares = torch.from_numpy(fixed_crops(picture.load(), Crops(name=crops), Tiny.side))
        rows.append((network.regions if regions else network)(squares).detach().mean(0).numpy())
    return np.stack(rows).astype(dtype).astype(np.float32)


def values(stored):
    return stored.features[np.arange(len(stored.features))]


@pytest.mark.parametrize("crops", ["1C", "10C"])
@pytest.mark.parametrize("regions", [None, Regions()], ids=["pooled", "grid"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_picture_has_its_own_features(pictures, folder, crops, regions, dtype):
    how = {"crops": crops, "regions": regions, "dtype": dtype}
    stored = run(pictures, folder, **how)
    assert stored.features.shape == ((4, 3) if regions else (3,))
    assert stored.computed == 40
    assert stored.readable.tolist() == list(range(40))
    assert stored.skipped == stored.enlarged == {}
    np.testing.assert_allclose(values(stored), expected(pictures, **how), atol=1e-3 if dtype == "float16" else 1e-6)
    assert np.load(folder / "part-00000.npy").dtype == dtype


@pytest.mark.parametrize("crops", ["1C", "mirrored", "10C"])
def test_crops_that_are_kept_apart_have_a_row_each(pictures, folder, crops):
    network, seen = Counting(), Crops(name=crops)
    stored = run(pictures, folder, network, crops=crops, regions=APART)
    assert stored.features.shape == (seen.count, 3)
    assert stored.boxes is None
    squares = [torch.from_numpy(fixed_crops(picture.load(), seen, Tiny.side)) for picture in pictures]
    np.testing.assert_allclose(values(stored), torch.stack([Tiny()(each).detach() for each in squares]), atol=1e-6)
    np.testing.assert_allclose(values(stored).mean(1), expected(pictures, crops=crops), atol=1e-6)
    assert len(set(network.batches)) == 1  # always as many squares, however many pictures are left
    assert network.batches[0] % seen.count == 0
    assert run(pictures, folder, crops=crops, regions=APART).computed == 0


@pytest.mark.parametrize("workers", [0, 3])
def test_views_do_not_depend_on_neighbours_threads_or_interruptions(pictures, folder, tmp_path, workers):
    how = {"crops": "mirrored", "regions": APART}
    whole = values(run(pictures, folder, **how))
    run(pictures[7:8], tmp_path / "other", **how)
    again = run(pictures[::-1], tmp_path / "other", workers=workers, **how)
    np.testing.assert_array_equal(values(again)[::-1], whole)


def test_a_second_run_computes_and_reads_nothing(pictures, folder, later, monkeypatch):
    first = run(pictures, folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    network = Tiny()
    monkeypatch.setattr(extraction, "file_hash", None)
    monkeypatch.setattr(extraction, "decode", None)
    again = run(pictures, folder, network)
    assert network.shown == again.computed == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    np.testing.assert_array_equal(values(again), values(first))


def test_without_the_cache_files_are_read_but_not_decoded(pictures, folder, monkeypatch):
    run(pictures, folder)
    (folder / "seen.json").unlink(missing_ok=True)
    monkeypatch.setattr(extraction, "decode", None)
    network = Tiny()
    assert run(pictures, folder, network).computed == 0
    assert network.shown == 0


def test_a_full_store_can_be_read_while_another_holds_it(pictures, folder, later):
    run(pictures, folder)
    with extraction.held(folder, DataError):
        assert run(pictures, folder).computed == 0
        with pytest.raises(DataError, match=f"process {os.getpid()} is writing here"):
            run([*pictures, photo(folder.parent / "new.png", 99)], folder)


def test_renamed_equal_and_changed_photos(pictures, folder, later, tmp_path):
    first = values(run(pictures, folder))
    (tmp_path / "5.png").rename(tmp_path / "renamed.png")
    moved = [*pictures[:5], PictureFile(tmp_path / "renamed.png"), *pictures[6:]]
    stored = run(moved, folder)
    assert stored.computed == 0
    np.testing.assert_array_equal(values(stored), first)

    (tmp_path / "copy.png").write_bytes((tmp_path / "7.png").read_bytes())
    stored = run([PictureFile(tmp_path / "copy.png"), *moved], folder)
    assert stored.computed == 0
    np.testing.assert_array_equal(values(stored)[0], first[7])

    photo(tmp_path / "7.png", 1234)
    stored = run(moved, folder)
    assert stored.computed == 1
    np.testing.assert_array_equal(values(stored), expected(moved))
    assert not np.array_equal(values(stored)[7], first[7])
    np.testing.assert_array_equal(np.delete(values(stored), 7, 0), np.delete(first, 7, 0))


def test_an_edit_that_keeps_size_and_time_is_seen(folder, tmp_path):
    """Two edits within a tick of the clock: what was just written is hashed again, not trusted."""
    path = tmp_path / "a.ppm"
    first, second = (f"P6 20 16 255\n{letter * 960}".encode() for letter in "ab")
    path.write_bytes(first)
    when = path.stat().st_mtime_ns
    run([PictureFile(path)], folder)
    path.write_bytes(second)
    os.utime(path, ns=(when, when))
    stored = run([PictureFile(path)], folder)
    assert stored.computed == 1
    np.testing.assert_array_equal(values(stored), expected([PictureFile(path)]))


def test_unreadable_images_are_left_out_with_their_reason(pictures, folder, tmp_path, later):
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
        network = Tiny()
        stored = run(pictures, folder, network)
        assert stored.skipped == reasons
        assert stored.readable.tolist() == good
        assert stored.computed == wanted
        assert (network.shown > 0) == (wanted > 0)
        np.testing.assert_array_equal(values(stored), expected([pictures[image] for image in good]))
    photo(tmp_path / "5.png", 5)
    assert 5 not in run(pictures, folder).skipped


def test_a_damaged_image_is_tried_once(folder, tmp_path, monkeypatch):
    bad = PictureFile(tmp_path / "bad.png")
    bad.path.write_bytes(b"no image at all")
    first = run([bad], folder)
    monkeypatch.setattr(extraction, "decode", None)
    moved = PictureFile(bad.path.rename(tmp_path / "moved.png"))
    again = run([moved], folder)
    assert again.skipped[0] == first.skipped[0].replace("bad.png", "moved.png")


def test_nothing_readable_is_no_row(folder, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    stored = run([PictureFile(tmp_path / "a.png")], folder)
    assert values(stored).shape == (0, 3)
    assert list(stored.skipped) == [0]
    assert values(run([], folder)).shape == (0, 3)


def test_a_file_that_changes_while_it_is_read_is_left_for_another_time(pictures, folder, tmp_path, monkeypatch):
    plain = extraction.decode

    def decode(path, size):
        if path.name == "2.png":
            photo(path, 77)
        return plain(path, size)

    with monkeypatch.context() as patch:
        patch.setattr(extraction, "decode", decode)
        stored = run(pictures, folder)
    assert stored.skipped == {2: f"{tmp_path / '2.png'}: changed while it was read; run the command again"}
    stored = run(pictures, folder)
    assert stored.skipped == {}
    assert stored.computed == 1
    np.testing.assert_array_equal(values(stored), expected(pictures))


def test_small_photos_are_named_with_their_size(folder, tmp_path):
    sizes = [(14, 14), (13, 40), (40, 13), (3, 5)]
    pictures = [photo(tmp_path / f"{number}.png", number, size) for number, size in enumerate(sizes)]
    for _ in range(2):
        assert run(pictures, folder).enlarged == {1: (13, 40), 2: (40, 13), 3: (3, 5)}


def test_drawn_pictures_are_known_by_their_pixels(folder):
    pictures = make_scenes(train=5, val=0, test=0).pictures
    first = run(pictures, folder)
    assert first.computed == 5
    np.testing.assert_array_equal(values(first), expected(pictures))
    again = run(pictures[::-1], folder)
    assert again.computed == 0
    np.testing.assert_array_equal(values(again), values(first)[::-1])


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_the_number_of_threads_changes_nothing(pictures, folder, workers):
    twice = [*pictures, *pictures[::-1]]
    stored = run(twice, folder, workers=workers)
    assert stored.computed == 40
    np.testing.assert_array_equal(values(stored), expected(twice))


def test_an_image_has_the_same_bits_in_any_company(pictures, folder):
    """A convolution whose sums may depend on how many images there are; dropout, if it were on, would show too."""

    class Net(Tiny):
        size = 8

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5), torch.nn.Dropout())

        def forward(self, pixels):
            return self.layers(pixels.float()).mean((2, 3))

    whole = values(run(pictures, folder / "whole", Net(), dtype="float32"))
    for count in (1, 3, 17):
        some = values(run(pictures[-count:], folder / str(count), Net(), dtype="float32"))
        np.testing.assert_array_equal(some, whole[-count:])


def stop_after(count, error):
    def watch(done, total):
        assert total == 40
        if done >= count:
            raise error

    return watch


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=["Ctrl-C", "memory"])
def test_interrupted_work_is_kept_and_gone_on_with(pictures, folder, error):
    with pytest.raises(type(error)):
        run(pictures, folder, watch=stop_after(16, error))
    assert sum(len(np.load(part)) for part in folder.glob("part-*.npy")) == 16
    stored = run(pictures, folder)
    assert stored.computed == 24
    whole = run(pictures, folder.with_name("whole"))
    np.testing.assert_array_equal(values(stored), values(whole))


def test_the_end_is_told(pictures, folder):
    told = []
    run(pictures, folder, watch=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (40, 40)


@pytest.mark.parametrize(("rows", "parts"), [(16, 3), (17, 2), (1000, 1)])
def test_parts_end_when_they_are_full(pictures, folder, monkeypatch, rows, parts):
    monkeypatch.setattr(extraction, "PART_ROWS", rows)
    np.testing.assert_array_equal(values(run(pictures, folder)), expected(pictures))
    assert len(list(folder.glob("part-*.npy"))) == parts


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_a_full_disk_keeps_what_was_written(pictures, folder, part_a_batch, monkeypatch, fails_at):
    calls, sync = [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) >= fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run(pictures, folder)
    assert not list(folder.glob(".*.tmp"))
    stored = run(pictures, folder)
    assert stored.computed == (24 if fails_at == 4 else 40)  # about, rows, images of the first part, rows of the second
    np.testing.assert_array_equal(values(stored), expected(pictures))


KILLED = """
    import importlib.util, os, pathlib, signal, sys

    spec = importlib.util.spec_from_file_location("test_extract", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    root, kills = pathlib.Path(sys.argv[2]), int(sys.argv[3])
    module.extraction.PART_SECONDS = 0
    module.extraction.SQUARES_ON_CPU = module.AT_ONCE
    module.identity.QUIET = 1 << 62  # no writing of the cache in between
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


def test_killed_at_any_write_at_most_the_part_in_the_making_is_lost(pictures, tmp_path):
    kills = 7  # about.json, then rows and images of each of three parts
    command = [sys.executable, "-c", textwrap.dedent(KILLED), __file__, str(tmp_path), str(kills)]
    subprocess.run(command, check=True)
    for kill_at in range(1, kills + 1):
        folder = tmp_path / f"killed-{kill_at}"
        assert list(folder.glob(".*.tmp"))  # it was killed in the middle
        finished = [0, 0, 0, 0, 16, 16, 32, 32][kill_at]
        stored = run(pictures, folder)
        assert stored.computed == 40 - finished
        assert not list(folder.glob(".*.tmp"))
        np.testing.assert_array_equal(values(stored), expected(pictures))


def test_squares_of_another_side_for_a_backbone_that_reads_them(pictures, folder):
    class Wide(Tiny):
        side, any_side = 32, True

    network, crops = Wide(), Crops(name="whole", side=64)
    making = Making.of("tiny", network, crops)
    stored = extract(pictures[:3], network, making, folder, workers=0, device=CPU)
    squares = [torch.from_numpy(fixed_crops(picture.load(), crops, 64)) for picture in pictures[:3]]
    assert squares[0].shape == (1, 3, 64, 64)
    np.testing.assert_allclose(values(stored), torch.cat([network(each).detach() for each in squares]), atol=1e-6)
    assert len(stored.enlarged) == 3
    grid = Making.of("tiny", network, crops, regions=Regions())
    stored = extract(pictures[:3], network, grid, folder / "grid", workers=0, device=CPU)
    assert stored.features.shape == (81, 3)  # nine windows of seven pixels fit into 64, four into 32
    cells = torch.cat([network.regions(each).detach() for each in squares])
    np.testing.assert_allclose(values(stored), cells, atol=1e-6)
    fixed = Tiny()
    fixed.name = "tiny"
    with pytest.raises(RecipeError, match="side = 64: tiny reads squares of 14 only"):
        extract(pictures, fixed, Making.of("tiny", fixed, crops), folder / "fixed", workers=0, device=CPU)


def test_a_store_that_was_made_otherwise_is_refused_before_any_work(pictures, folder):
    run(pictures[:1], folder)
    network = Tiny()
    with torch.no_grad():
        network.scale.mul_(2)
    with pytest.raises(DataError, match="weights of tiny"):
        run(pictures, folder, network)
    assert network.shown == 0
    with pytest.raises(DataError, match="is a file; name a folder"):
        run(pictures, pictures[0].path)


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
def test_nobody_gets_another_ones_features(tmp_path_factory, runs, missing, workers):
    """Any order, equal images, skipped neighbours, earlier runs over other images."""
    root = tmp_path_factory.mktemp("orders")
    for number, kinds in enumerate(runs):
        pictures = [PictureFile(root / f"{number}-{place}") for place in range(len(kinds))]
        for place, kind in enumerate(kinds):
            if place not in missing:
                pictures[place].path.write_bytes(content(kind))
        stored = run(pictures, root / "features", workers=workers)
        good = [place for place, kind in enumerate(kinds) if kind >= 0 and place not in missing]
        assert stored.readable.tolist() == good
        assert sorted(stored.skipped) == [place for place in range(len(kinds)) if place not in good]
        assert all(str(pictures[place].path) in reason for place, reason in stored.skipped.items())
        if good:
            np.testing.assert_array_equal(values(stored), expected([pictures[place] for place in good]))
    making = Making.of("tiny", Tiny(), Crops())
    distinct = {kind for kinds in runs for place, kind in enumerate(kinds) if kind >= 0 and place not in missing}
    assert len(FeatureStore.open(Path(root / "features"), making)) == len(distinct)


SEARCH = Regions(method="selective-search", count=3)


def two_boxes(regions):
    """Stands for OpenCV: two boxes that depend on the photo, and one place that stays empty."""

    def propose(photo):
        red, green, blue = (float(value) / 256 for value in photo.resize((1, 1)).getpixel((0, 0)))
        return np.array([[0, 0, 1, 1], [red / 2, green / 2, 0.5 + blue / 2, 1], [0, 0, 0, 0]], np.float32)

    return propose


@pytest.fixture
def proposing(monkeypatch):
    monkeypatch.setattr(places, "proposer", two_boxes)


def test_proposals_are_stored_with_their_boxes(pictures, folder, proposing, part_a_batch):
    broken = folder.parent / "broken.png"
    broken.write_bytes(b"nothing")
    given = [*pictures[:20], PictureFile(broken), *pictures[20:]]
    stored = run(given, folder, crops="whole", regions=SEARCH)
    assert len(list(folder.glob("part-*.boxes.npy"))) == 3
    assert stored.readable.tolist() == [*range(20), *range(21, 41)]
    boxes = stored.boxes[np.arange(40)]
    np.testing.assert_array_equal(boxes, [two_boxes(SEARCH)(picture.load()) for picture in pictures])
    assert len(np.unique(boxes[:, 1], axis=0)) > 30  # they differ from photo to photo
    grids = torch.from_numpy(expected(pictures, crops="whole", regions=Regions()))  # (40, 4, 3)
    maps = grids.transpose(1, 2).reshape(40, 3, 2, 2)
    np.testing.assert_allclose(values(stored), roi_align(maps, torch.from_numpy(boxes)), atol=1e-6)
    assert not values(stored)[:, 2].any()
    network = Tiny()
    again = run(given[::-1], folder, network, crops="whole", regions=SEARCH)
    assert network.shown == again.computed == 0
    np.testing.assert_array_equal(again.boxes[np.arange(40)], boxes[::-1])


def test_a_grid_has_no_stored_boxes(pictures, folder):
    assert run(pictures[:2], folder, regions=Regions()).boxes is None
    assert not list(folder.glob("*.boxes.npy"))


def test_proposals_of_a_crop_are_refused_before_any_work(pictures, folder):
    with pytest.raises(RecipeError, match=r"selective-search needs crops = \"whole\", not '1C'"):
        run(pictures, folder, crops="1C", regions=SEARCH)
    assert not folder.exists()
