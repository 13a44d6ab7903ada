"""Several ranks extract together: they share the work, stop together, and leave the store of one process."""

import numpy as np
import pytest
from PIL import Image

from diptych.data.corpus import Corpus
from diptych.data.images import PictureFile
from diptych.errors import DataError, RankError
from diptych.features import extract as extraction
from diptych.features.regions import Regions
from diptych.files import locked_folder
from support.backbones import TinyBackbone
from support.extraction import extract_tiny, rows_of
from support.pictures import save_photo
from support.ranks import on_threads


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(extraction, "CROPS_ON_CPU", 8)
    monkeypatch.setattr(extraction, "PART_SECONDS", 0)
    monkeypatch.setattr(extraction, "PART_ROWS", 16)


@pytest.fixture
def pictures(tmp_path):
    """37 photos, of which some are copies, small or damaged."""
    some = [save_photo(tmp_path / f"{number}.png", number) for number in range(33)]
    Image.new("RGB", (8, 6), "red").save(tmp_path / "small.png")
    (tmp_path / "damaged.png").write_bytes(b"no image")
    copies = [save_photo(tmp_path / f"copy-{number}.png", number) for number in (2, 30)]
    return [*some[:12], PictureFile(tmp_path / "damaged.png"), *some[12:], PictureFile(tmp_path / "small.png"), *copies]


def content(folder):
    """The bytes of the files of a store by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def counted(count, work):
    """What each rank returns, and how many crops its backbone has seen."""
    backbones = [TinyBackbone() for _ in range(count)]
    return on_threads(count, lambda ranks: work(backbones[ranks.rank], ranks)), [each.shown for each in backbones]


@pytest.mark.usefixtures("trusted_clock")
@pytest.mark.parametrize("count", [2, 3])
def test_the_store_is_that_of_one_process(pictures, tmp_path, count):
    alone = extract_tiny(pictures, tmp_path / "alone")
    found, shown = counted(
        count, lambda backbone, ranks: extract_tiny(pictures, tmp_path / "ranks", backbone, ranks=ranks)
    )
    assert content(tmp_path / "ranks") == content(tmp_path / "alone")
    assert {"part-00002.npy", "seen.json"} <= content(tmp_path / "ranks").keys()
    assert max(shown) < 37 * 2 / count
    for stored in found:
        np.testing.assert_array_equal(rows_of(stored), rows_of(alone))
        assert stored.readable.tolist() == alone.readable.tolist()
        assert (stored.computed, stored.skipped, stored.enlarged) == (34, alone.skipped, alone.enlarged)
    _, shown = counted(2, lambda backbone, ranks: extract_tiny(pictures, tmp_path / "ranks", backbone, ranks=ranks))
    assert shown == [0, 0]


def test_pictures_in_memory_and_boxes_are_shared_too(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (9, 40, 50, 3), np.uint8)
    pictures = Corpus.from_pairs(list(noise), list("abcdefghi")).pictures
    boxes = np.random.default_rng(1).uniform(0, 0.4, (9, 2, 4)) + np.array([0, 0, 0.5, 0.5])
    options = {"crops": "whole", "regions": Regions(method="annotated", count=2), "boxes": boxes.astype(np.float32)}
    extract_tiny(pictures, tmp_path / "alone", **options)
    on_threads(2, lambda ranks: extract_tiny(pictures, tmp_path / "ranks", ranks=ranks, **options))
    assert content(tmp_path / "ranks") == content(tmp_path / "alone")
    assert "part-00000.boxes.npy" in content(tmp_path / "ranks")


def stop(done, total):
    if done >= 20:
        raise KeyboardInterrupt


@pytest.mark.usefixtures("trusted_clock")
@pytest.mark.parametrize(("first", "second"), [(1, 3), (2, 1), (3, 2)])
def test_another_number_of_ranks_continues(pictures, tmp_path, first, second):
    extract_tiny(pictures, tmp_path / "alone")

    def interrupted(ranks):
        with pytest.raises(KeyboardInterrupt if ranks.is_first else RankError):
            extract_tiny(pictures, tmp_path / "ranks", progress=stop if ranks.is_first else None, ranks=ranks)

    on_threads(first, interrupted)
    names = [path.name for path in (tmp_path / "ranks").glob("new-*.npy")]
    assert {int(name.split("-")[1]) for name in names} == set(range(first))
    found = on_threads(second, lambda ranks: extract_tiny(pictures, tmp_path / "ranks", ranks=ranks))
    assert 0 < found[0].computed <= 20
    assert content(tmp_path / "ranks") == content(tmp_path / "alone")


def test_a_rank_that_fails_stops_the_others_and_is_named(pictures, tmp_path):
    def failing(done, total):
        if done >= 16:
            raise OSError(28, "No space left on device")

    def run(ranks):
        if ranks.is_first:
            with pytest.raises(RankError, match=r"rank 1: OSError.*No space left"):
                extract_tiny(pictures, tmp_path / "ranks", ranks=ranks)
        else:
            with pytest.raises(OSError, match="No space left"):
                extract_tiny(pictures, tmp_path / "ranks", progress=failing, ranks=ranks)

    on_threads(2, run)
    assert 16 <= 37 - extract_tiny(pictures, tmp_path / "ranks").computed < 37


def test_a_store_that_another_process_writes_is_refused_by_all(pictures, tmp_path):
    def run(ranks):
        with pytest.raises(DataError if ranks.is_first else RankError, match="is writing to it"):
            extract_tiny(pictures, tmp_path / "ranks", ranks=ranks)

    with locked_folder(tmp_path / "ranks", DataError):
        on_threads(2, run)


@pytest.mark.usefixtures("trusted_clock")
def test_a_complete_store_is_read_while_another_process_adds_to_it(pictures, tmp_path):
    """New parts are read as well, and left to the process that will settle them."""
    extract_tiny(pictures, tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        extract_tiny([*pictures, *more_pictures(tmp_path)], tmp_path / "store", progress=stop)
    with locked_folder(tmp_path / "store", DataError):
        assert extract_tiny(pictures, tmp_path / "store").computed == 0
        assert list((tmp_path / "store").glob("new-*"))
    assert extract_tiny(pictures, tmp_path / "store").computed == 0
    assert not list((tmp_path / "store").glob("new-*"))


def more_pictures(folder):
    return [save_photo(folder / f"more-{number}.png", 100 + number) for number in range(30)]
