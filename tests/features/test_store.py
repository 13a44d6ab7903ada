import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

import diptych
from diptych.errors import DataError
from diptych.features.crops import Crops
from diptych.features.regions import Regions
from diptych.features.store import FeatureStore, FeatureStoreSpec, Part, store_folder
from support.backbones import TinyBackbone

SPEC = FeatureStoreSpec(backbone="tiny", weights="ab" * 32, crops=Crops(), regions=None, dtype="float16")
PROPOSED = Regions(method="selective-search", count=2)
VIEWS = Regions(method="crops")
FOREST = Regions(method="edge-boxes", model="forest.yml")


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((7, 3)).astype(np.float16)


@pytest.fixture
def folder(tmp_path, rows):
    """A store with rows a to g in two parts, one image that cannot be read, and one that is small."""
    folder = tmp_path / "store"
    store = FeatureStore.open_or_create(folder, SPEC, (3,))
    store.write(Part(rows=list("abcd"), unreadable={"x": "damaged"}), rows[:4])
    store.write(Part(rows=list("efg"), enlarged={"g": (10, 20)}), rows[4:])
    return folder


def opened(folder, **changes):
    return FeatureStore.open(folder, SPEC.model_copy(update=changes))


def refused(folder, **changes):
    with pytest.raises(DataError) as raised:
        opened(folder, **changes)
    message = str(raised.value)
    assert str(folder) in message
    assert "\n" not in message
    return message


def test_each_image_has_its_own_row_in_any_order(folder, rows):
    store = opened(folder)
    assert len(store) == 7
    found = store.features(list("gaeecb"))
    assert found.shape == (3,)
    np.testing.assert_array_equal(found[np.arange(6)], rows[[6, 0, 4, 4, 2, 1]].astype(np.float32))
    np.testing.assert_array_equal(found.take(np.array([2, 0]))[np.arange(2)], rows[[4, 6]].astype(np.float32))
    with pytest.raises(DataError, match="no features of the image with hash zzz"):
        store.features(["a", "zzz"])


def test_a_store_knows_which_images_need_no_work(folder):
    store = opened(folder)
    assert "a" in store
    assert "x" in store
    assert "z" not in store
    assert store.has_row("a")
    assert not store.has_row("x")
    assert store.unreadable == {"x": "damaged"}
    assert store.enlarged == {"g": (10, 20)}


def test_rows_are_memory_mapped(folder):
    base = opened(folder).features(["a"])._parts[1]
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_an_empty_store_has_no_rows(tmp_path):
    store = FeatureStore.open_or_create(tmp_path / "store", SPEC, (3,))
    assert store.features([])[np.arange(0)].shape == (0, 3)


def test_parts_are_never_changed(folder, rows):
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}
    store = FeatureStore.open_or_create(folder, SPEC, (3,))
    store.write(Part(rows=["h"]), rows[:1])
    after = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}
    assert before.items() < after.items()
    assert after.keys() - before.keys() == {"part-00002.npy", "part-00002.json"}


def test_an_image_in_two_parts_keeps_its_first_row(folder, rows):
    opened(folder).write(Part(rows=["a"]), rows[6:])
    np.testing.assert_array_equal(opened(folder).features(["a"])[np.arange(1)], rows[:1])


def test_new_parts_are_settled_in_the_order_of_the_images(folder, rows):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    store = opened(folder)
    store.write_new(Part(rows=["k", "h"], unreadable={"z": "cut short"}), rows[:2], rank=1)
    store.write_new(Part(rows=["h", "i"], enlarged={"i": (3, 4)}, unreadable={"x": "damaged", "y": "empty"}), rows[2:4])
    store.write_new(Part(rows=["a", "j"]), rows[5:])
    assert not store.is_settled
    assert store.images == 11
    opened(folder).settle([*"hiajz"], 3)
    store = opened(folder)
    assert store.is_settled
    found = store.features(list("abhijk"))[np.arange(6)]
    np.testing.assert_array_equal(found, rows[[0, 1, 2, 3, 6, 0]].astype(np.float32))
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.items() < after.items()
    names = {f"part-0000{part}.{ending}" for part in (2, 3) for ending in ("npy", "json")}
    assert after.keys() - before.keys() == names
    parts = [json.loads(after[f"part-0000{part}.json"]) for part in (2, 3)]
    assert [part["rows"] for part in parts] == [["h", "i", "j"], ["k"]]
    assert [part["unreadable"] for part in parts] == [{"y": "empty", "z": "cut short"}, {}]
    assert parts[0]["enlarged"] == {"i": [3, 4]}
    store.settle([], 3)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == after


def test_a_store_is_opened_while_another_process_settles_it(folder, rows, monkeypatch):
    opened(folder).write_new(Part(rows=["h"]), rows[:1])
    add, calls = FeatureStore._add, []

    def settle_before(store, path):
        if path.name.startswith("new-") and not calls:
            calls.append(path)
            opened(folder).settle(["h"], 10)
        add(store, path)

    monkeypatch.setattr(FeatureStore, "_add", settle_before)
    store = opened(folder)
    assert calls
    assert store.is_settled
    np.testing.assert_array_equal(store.features(["h"])[np.arange(1)], rows[:1].astype(np.float32))


def test_another_decoder_may_read_what_this_one_cannot(folder):
    path = folder / "part-00000.json"
    path.write_text(path.read_text().replace("Pillow ", "Pillow 1."))
    assert "x" not in opened(folder)
    assert "a" in opened(folder)


def test_a_store_records_its_version(folder):
    about = json.loads((folder / "about.json").read_text())
    assert about["version"] == diptych.__version__
    assert about["shape"] == [3]
    assert FeatureStoreSpec.model_validate(about["making"]) == SPEC


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backbone": "lite0"}, "backbone tiny, not lite0"),
        ({"weights": "cd" * 32}, "weights of tiny abababababab, not cdcdcdcdcdcd"),
        ({"crops": Crops(name="10C")}, "crops 1C, not 10C"),
        ({"crops": Crops(resize="short")}, "resize square, not short"),
        ({"crops": Crops(side=288)}, "side the backbone's own, not 288"),
        ({"regions": Regions()}, "regions none, not grid"),
        ({"regions": VIEWS}, "regions none, not crops"),
        ({"regions": Regions(method="selective-search", count=5)}, "regions none, not selective-search-5"),
        ({"forest": "ef" * 32}, "structured forest none, not efefefefefef"),
        ({"dtype": "float32"}, "dtype float16, not float32"),
    ],
    ids=["backbone", "weights", "crops", "resize", "side", "grid", "views", "proposals", "forest", "dtype"],
)
def test_a_store_with_another_spec_is_refused(folder, changes, words):
    message = refused(folder, **changes)
    assert words in message
    assert "name another folder" in message


def test_a_store_of_another_shape_is_refused(folder):
    with pytest.raises(DataError, match=r"rows of shape \(3,\), the backbone gives \(4,\)"):
        FeatureStore.open_or_create(folder, SPEC, (4,))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not valid JSON"),
        ("[]", "not written by `diptych features`"),
        ('{"format": 1}', "key 'version' is missing"),
        ('{"format": 1, "colour": 2}', "missing"),
    ],
    ids=["empty", "a list", "cut", "foreign"],
)
def test_a_damaged_about_file_is_refused_with_a_remedy(folder, content, words):
    (folder / "about.json").write_text(content)
    message = refused(folder)
    assert words in message
    assert "compute the features again" in message


def test_a_later_format_is_refused(folder):
    path = folder / "about.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    assert "format 2; this version of Diptych reads format 1" in refused(folder)


def test_a_folder_with_other_files_is_not_a_store(tmp_path):
    assert "there are no features" in refused(tmp_path)
    (tmp_path / "thesis.txt").write_text("mine")
    assert "holds other files" in refused(tmp_path)
    with pytest.raises(DataError, match="holds other files"):
        FeatureStore.open_or_create(tmp_path, SPEC, (3,))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("name", ["part-00001.npy", "part-00001.json"])
@pytest.mark.parametrize("harm", [cut, lambda path: path.write_bytes(b"")], ids=["cut", "emptied"])
def test_a_truncated_part_is_refused_with_a_remedy(folder, rows, name, harm):
    harm(folder / name)
    message = refused(folder)
    assert name in message
    assert "delete" in message
    for path in folder.glob("part-00001.*"):  # as the message says
        path.unlink()
    assert not opened(folder).has_row("g")
    np.testing.assert_array_equal(opened(folder).features(["d"])[np.arange(1)], rows[3:4])


@pytest.mark.parametrize(
    "array",
    [np.zeros((3, 4), np.float16), np.zeros((2, 3), np.float16), np.zeros((3, 3), np.float32), np.zeros(3, np.float16)],
    ids=["wide", "short", "dtype", "flat"],
)
def test_a_part_of_the_wrong_shape_is_refused(folder, array):
    np.save(folder / "part-00001.npy", array)
    message = refused(folder)
    assert "part-00001.npy: holds" in message
    assert "not float16 of shape (3, 3)" in message


def test_pickled_objects_and_missing_files_are_refused(folder):
    np.save(folder / "part-00001.npy", np.array([{}]), allow_pickle=True)
    assert "part-00001.npy: damaged" in refused(folder)
    (folder / "part-00001.npy").unlink()
    assert "part-00001.npy: no such file" in refused(folder)
    (folder / "part-00001.json").rename(folder / "part-one.json")
    assert "part-one.json: not a valid name of a part" in refused(folder)


@pytest.mark.parametrize("fails_at", [1, 2], ids=["rows", "images"])
def test_a_full_disk_leaves_the_store_as_it_was(folder, rows, monkeypatch, fails_at):
    store, calls, sync = opened(folder), [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write(Part(rows=["h"]), rows[:1])
    assert not any(path.name.endswith(".tmp") for path in folder.iterdir())
    assert len(opened(folder)) == 7
    store.write(Part(rows=["h"]), rows[5:6])  # there is space again
    np.testing.assert_array_equal(opened(folder).features(["h"])[np.arange(1)], rows[5:6])


@pytest.mark.parametrize(
    ("value", "words"), [(1e5, "use --dtype float32"), (np.nan, "not finite; check its weights")], ids=["large", "nan"]
)
def test_values_that_cannot_be_stored_are_refused(folder, value, words):
    with pytest.raises(DataError, match=words):
        opened(folder).write(Part(rows=["h"]), np.array([[0, value, 0]], np.float32))
    assert len(opened(folder)) == 7


def test_rows_and_keys_must_have_the_same_number(folder, rows):
    with pytest.raises(ValueError, match="for 2 images"):
        opened(folder).write(Part(rows=["h", "i"]), rows[:3])
    assert len(opened(folder)) == 7


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"backbone": "lite0", "dtype": "float32"}, "lite0-1C"),
        ({"backbone": "lite0", "crops": Crops(name="10C", resize="short")}, "lite0-10C-short-float16"),
        ({"backbone": "timm:a/b c", "regions": Regions(), "dtype": "float16"}, "timm-a-b-c-1C-grid-float16"),
        ({"regions": PROPOSED, "dtype": "float32"}, "tiny-1C-selective-search-2"),
        ({"crops": Crops(name="mirrored"), "regions": VIEWS, "dtype": "float32"}, "tiny-mirrored-crops"),
        ({"regions": FOREST, "forest": "ef" * 32, "dtype": "float32"}, "tiny-1C-edge-boxes-36-efefefef"),
        ({"backbone": "../../etc:x", "dtype": "float32"}, "etc-x-1C"),
    ],
    ids=["plain", "ten short", "grid", "proposals", "views", "forest", "hostile"],
)
def test_the_default_folder_of_a_store(changes, name):
    assert store_folder(Path("features"), SPEC.model_copy(update=changes)) == Path("features") / name


@pytest.fixture
def proposed(tmp_path):
    """A store of two regions an image, with their boxes."""
    folder = tmp_path / "proposed"
    store = FeatureStore.open_or_create(folder, SPEC.model_copy(update={"regions": PROPOSED}), (2, 3))
    random = np.random.default_rng(1)
    boxes = random.random((3, 2, 4), np.float32)
    rows = random.standard_normal((3, 2, 3)).astype(np.float16)
    store.write(Part(rows=["a", "b"]), rows[:2], boxes[:2])
    store.write(Part(rows=["c"]), rows[2:], boxes[2:])
    return folder, rows, boxes


def test_boxes_are_stored_next_to_their_rows(proposed):
    folder, rows, boxes = proposed
    store = opened(folder, regions=PROPOSED)
    np.testing.assert_array_equal(store.boxes(list("caab"))[np.arange(4)], boxes[[2, 0, 0, 1]])
    np.testing.assert_array_equal(store.features(list("cb"))[np.arange(2)], rows[[2, 1]].astype(np.float32))
    assert (folder / "part-00001.boxes.npy").exists()
    with pytest.raises(DataError, match="no features of the image with hash zz"):
        store.boxes(["zz"])


def test_only_a_store_of_boxes_has_boxes(folder, proposed, rows):
    assert opened(folder).boxes(["a"]) is None
    with pytest.raises(ValueError, match="for 1 images"):
        opened(folder).write(Part(rows=["h"]), rows[:1], np.zeros((1, 3, 4), np.float32))
    with pytest.raises(ValueError, match="for 1 images"):
        opened(proposed[0], regions=PROPOSED).write(Part(rows=["h"]), np.zeros((1, 2, 3), np.float16))


def test_a_part_is_valid_only_after_its_boxes_are_written(proposed, monkeypatch):
    """The JSON is written last: a process that is killed before leaves neither rows nor boxes to be read."""
    folder = proposed[0]
    store = opened(folder, regions=PROPOSED)
    written = []
    monkeypatch.setattr("diptych.features.store.write_json", lambda path, value: written.extend(folder.glob("*2.*")))
    with pytest.raises(DataError, match=r"part-00002\.json: no such file"):
        store.write(Part(rows=["d"]), np.zeros((1, 2, 3), np.float16), np.zeros((1, 2, 4), np.float32))
    assert sorted(path.name for path in written) == ["part-00002.boxes.npy", "part-00002.npy"]
    assert len(opened(folder, regions=PROPOSED)) == 3


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged or truncated"),
        (
            lambda path: np.save(path, np.zeros((2, 3, 4), np.float32)),
            r"shape (2, 3, 4), not float32 of shape (2, 2, 4)",
        ),
    ],
    ids=["gone", "cut", "other"],
)
def test_damaged_boxes_are_refused_with_a_remedy(proposed, damage, words):
    folder = proposed[0]
    damage(folder / "part-00000.boxes.npy")
    message = refused(folder, regions=PROPOSED)
    assert words in message
    assert "part-00000.boxes.npy" in message
    assert "part-00000.* and compute the features again" in message


def test_a_structured_forest_is_known_by_its_content_not_by_its_path(tmp_path):
    specs = {}
    for name, content in {"one": b"trees", "copy": b"trees", "other": b"more trees"}.items():
        (tmp_path / name).write_bytes(content)
        regions = Regions(method="edge-boxes", model=str(tmp_path / name))
        specs[name] = FeatureStoreSpec.for_backbone(TinyBackbone(), Crops(name="whole"), regions=regions)
    folder = tmp_path / "store"
    FeatureStore.open_or_create(folder, specs["one"], (36, 3))
    assert len(FeatureStore.open(folder, specs["copy"])) == 0
    with pytest.raises(DataError, match=r"structured forest [0-9a-f]{12}, not [0-9a-f]{12};"):
        FeatureStore.open(folder, specs["other"])
    with pytest.raises(DataError, match=r"gone: no such file of a structured forest; .* model\.yml\.gz"):
        FeatureStoreSpec.for_backbone(TinyBackbone(), Crops(), regions=Regions(method="edge-boxes", model="gone"))


@pytest.mark.parametrize(("said", "means"), [(False, None), (True, Regions())], ids=["pooled", "grid"])
def test_stores_of_version_0_1_are_read(said, means):
    assert FeatureStoreSpec(backbone="tiny", weights="ab", regions=said).regions == means


def test_stores_of_a_pair_are_told_apart_by_how_photos_are_prepared():
    specs = [
        FeatureStoreSpec(backbone="pair-clip", weights="0" * 64, crops=crops)
        for crops in (
            Crops(name="centre"),
            Crops(name="centre", interpolation="bicubic", full_size=True),
            Crops(name="patches", patch=16, patches=256, full_size=True),
        )
    ]
    names = [store_folder(Path(), spec).name for spec in specs]
    assert names == ["pair-clip-centre", "pair-clip-centre-bicubic-full", "pair-clip-patches-full-256"]
