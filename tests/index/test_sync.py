"""However a folder came to be what it is, its index is the one that would be made now, and encodes nothing twice."""

import io
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.errors import DataError
from diptych.index.entries import Filters
from diptych.index.sqlite.store import Store
from diptych.index.sync import _absolute, sync
from support.own_engine import model_from
from support.photo_folders import CLOCK, FakeModel, draw, ids, put, sync_now, view


def never():
    raise AssertionError("the model was opened")


NAMES = st.sampled_from(["a.png", "b.jpg", "s/a.png", "s/t/b.PNG"])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.sampled_from([0, 1, 2, b"", b"no image"])),
        st.tuples(st.just("move"), NAMES, NAMES),
        st.tuples(st.just("swap"), NAMES, NAMES),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("touch"), NAMES),
        st.tuples(st.just("say"), NAMES, st.sampled_from([b"", b"a dog", b"a cat\na dog", b"a dog\n\xff\na mouse"])),
        st.tuples(st.just("unsay"), NAMES),
    ),
    min_size=1,
    max_size=4,
)


def take(folder, step, name, *more):
    path = folder / name
    if step == "put":
        put(path, *more)
    elif step == "say":
        put(path.with_suffix(".txt"), *more)
    elif step == "unsay":
        path.with_suffix(".txt").unlink(missing_ok=True)
    elif path.exists():
        if step == "delete":
            path.unlink()
        elif step == "touch":
            os.utime(path, ns=(moment := next(CLOCK), moment))
        elif step == "move" and more[0] != name:
            (folder / more[0]).parent.mkdir(parents=True, exist_ok=True)
            path.replace(folder / more[0])
        elif step == "swap" and more[0] != name and (folder / more[0]).exists():
            path.replace(folder / "aside")
            (folder / more[0]).replace(path)
            (folder / "aside").replace(folder / more[0])


@settings(max_examples=10)
@given(st.lists(STEPS, min_size=1, max_size=3))
def test_syncing_after_every_change_equals_a_new_index(history):
    with tempfile.TemporaryDirectory() as name:
        folder, index, now = Path(name, "photos"), Path(name, "index"), Path(name, "now")
        put(folder / "always.png", 9)  # a folder that is empty all at once is refused
        model = FakeModel()
        for steps in history:
            for step in steps:
                take(folder, *step)
            known = view(index)[1] if index.exists() else []
            model.seen.clear()
            sync(model, str(folder), index, workers=0)
            assert len(model.seen) == len({row[:2] for row in view(index)[1]} - {row[:2] for row in known})
            assert view(sync_now(folder, now)) == view(index)
            again = sync(model_from(never, "fake", lambda: model.identity), str(folder), index, workers=0)
            assert (again.encoded, again.renamed, again.removed) == (0, 0, 0)


def test_a_renamed_image_keeps_its_entry_and_a_changed_one_too(photos, tmp_path):
    index, model = tmp_path / "index", FakeModel()
    first = sync(model, str(photos), index)
    assert (first.encoded, first.kept, first.texts_encoded) == (9, 0, 2)
    before = ids(index)
    model.seen.clear()
    (photos / "0.png").rename(photos / "sub" / "zero.png")
    (photos / "0.txt").rename(photos / "sub" / "zero.txt")
    put(photos / "2.png", 20)
    shutil.copy(photos / "4.png", photos / "copy.png")
    (photos / "6.png").unlink()
    result = sync(model, str(photos), index)
    assert (result.encoded, result.kept, result.renamed, result.removed, result.copies) == (1, 6, 1, 1, 1)
    assert len(model.seen) == 1
    assert result.texts_encoded == 0
    after = ids(index)
    assert after["sub/zero.png"] == before["0.png"]
    assert after["2.png"] == before["2.png"]
    assert after["copy.png"] not in before.values()
    assert "6.png" not in after
    assert view(index)[0]["sub/zero.png"][1] == ["a dog", "a cat"]


def test_every_remaining_image_has_its_own_vector_and_text(photos, tmp_path):
    for number, content in enumerate((b"", b"broken", draw(3).tobytes())):
        put(photos / f"{2 * number + 1}broken.jpg", content)
    for number in range(9):
        put(photos / ("sub" if number % 2 else ".") / f"{number}.txt", f"text {number}".encode())
    result = sync(FakeModel(), str(photos), tmp_path / "index", storage="float32")
    assert (result.encoded, result.problems) == (9, 3)
    found, _, problems = view(tmp_path / "index")
    for number in range(9):
        vector, texts, text_vectors, *_ = found[f"sub/{number}.png" if number % 2 else f"{number}.png"]
        model = FakeModel()
        assert vector == model.encode_preprocessed([model.preprocess(draw(number))]).vectors.tobytes()
        assert texts == [f"text {number}"]
        assert text_vectors == [model.encode_texts(texts).vectors.tobytes()]
    assert [key for key, _ in problems] == ["1broken.jpg", "3broken.jpg", "5broken.jpg"]
    assert problems[0][1] == "an empty file (0 bytes); copy it again"
    assert "not an image in a known format" in problems[1][1]
    put(photos / "1broken.jpg", 77)  # one that was mended is no problem any more
    assert sync(FakeModel(), str(photos), tmp_path / "index").problems == 2


def test_the_day_and_the_upright_size_of_a_photo_are_indexed(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8769)[0x9003] = "2019:03:04 05:06:07"
    (tmp_path / "photos").mkdir()
    draw(0, (700, 400)).save(tmp_path / "photos" / "a.jpg", exif=exif)
    sync(FakeModel(sets=True), str(tmp_path / "photos"), tmp_path / "index")
    store = Store.open(tmp_path / "index")
    (entry,) = store.entries(store.vectors("image")[0])
    assert (entry.taken, entry.width, entry.height) == ("2019-03-04", 400, 700)
    assert Image.open(io.BytesIO(store.thumbnail(entry.id))).size == (183, 320)
    assert np.allclose(store.sets([entry.id])[0], store.vectors("image")[1], atol=1e-3)
    store.close()


def test_links_that_leave_the_folder_are_reported_and_not_followed(photos, tmp_path):
    put(tmp_path / "photos-secret" / "x.png", 50)
    put(tmp_path / "secret.txt", b"a secret")
    (photos / "out.png").symlink_to(tmp_path / "photos-secret" / "x.png")
    (photos / "2.txt").symlink_to(tmp_path / "secret.txt")
    (photos / "outside").symlink_to(tmp_path / "photos-secret")
    (photos / "nothing.png").symlink_to("gone.png")
    (photos / "sub" / "round").symlink_to("..")
    (photos / "within.png").symlink_to("sub/1.png")
    put(photos / ".hidden" / "h.png", 51)
    os.mkfifo(photos / "pipe.jpg")
    sync(FakeModel(), str(photos), tmp_path / "index")
    found, _, problems = view(tmp_path / "index")
    assert len(found) == 10
    assert found["within.png"][0] == found["sub/1.png"][0]
    assert found["2.png"][1] == []
    assert {key: reason.split(";")[0] for key, reason in problems} == {
        **dict.fromkeys(("2.txt", "out.png", "outside"), "a link that leaves the folder"),
        "nothing.png": "no such file, or a link to nothing",
    }


def test_a_corpus_keeps_its_splits_texts_and_columns(tmp_path):
    sync(FakeModel(), "scenes:train=4,val=2,test=3,texts=2,images=2", tmp_path / "scenes", storage="int8")
    store = Store.open(tmp_path / "scenes")
    assert store.counts() == {"image": 18, "text": 36}
    assert store.splits() == ["test", "train", "val"]
    assert len(store.matching("text", Filters(split="val"))) == 8
    assert store.spec.root is None
    store.close()
    shop = tmp_path / "shop"
    for number in range(3):
        put(shop / "images" / f"{number}.png", number)
    rows = "image,text,price,split,Colour\n0.png,a cup,5,train,red\n0.png,a mug,6,train,\n1.png,a pot,5,test,blue\n"
    (shop / "captions.csv").write_text(rows + "gone.png,x,1,test,red\n")
    first = sync(FakeModel(), str(shop), tmp_path / "index")
    assert (first.encoded, first.problems) == (2, 1)
    store = Store.open(tmp_path / "index")
    assert store.spec.root == str(shop / "images")
    assert store.columns() == ["Colour", "price"]
    (entry,) = store.entries(store.matching("image", Filters(columns=(("price", "5"), ("Colour", "red")))))
    assert (entry.key, entry.path, entry.split) == ("0.png", str(shop / "images" / "0.png"), "train")
    assert store.captions([entry.id]) == {entry.id: ["a cup", "a mug"]}
    store.close()
    (shop / "captions.csv").write_text(rows.replace("red", "green").replace("a mug", "a beaker"))
    second = sync(FakeModel(), str(shop), tmp_path / "index")
    assert (second.encoded, second.texts_encoded, second.kept, second.problems) == (0, 1, 2, 0)
    table = sync(model_from(FakeModel, "fake", lambda: "f" * 64), str(shop / "captions.csv"), tmp_path / "by-file")
    assert table.encoded == 2
    np.save(tmp_path / "test_ims.npy", np.ones((5, 4), np.float32))
    (tmp_path / "test_caps.txt").write_text("a b\n" * 25)
    with pytest.raises(DataError, match="has stored features but no pictures, which an index needs"):
        sync(FakeModel(), str(tmp_path), tmp_path / "features")


def test_plain_columns_of_parquet_are_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    put(tmp_path / "0.png", 0)
    table = {"image": ["0.png"], "text": ["a cup"], "price": [5], "bytes": [b"x"], "tags": [["a"]], "shop": [None]}
    parquet.write_table(pyarrow.table(table), tmp_path / "shop.parquet")
    sync(FakeModel(), str(tmp_path / "shop.parquet"), tmp_path / "index")
    store = Store.open(tmp_path / "index")
    assert [dict(entry.columns) for entry in store.entries(store.vectors("image")[0])] == [{"price": "5"}]
    store.close()


def test_the_folder_in_the_address_of_a_pair_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    monkeypatch.chdir(tmp_path)
    assert _absolute("open_clip:ViT-B-32/weights") == f"open_clip:ViT-B-32/{tmp_path / 'weights'}"
    for address in ("open_clip:ViT-B-32/openai", "starter"):
        assert _absolute(address) == address
    assert _absolute("weights") == str(tmp_path / "weights")
