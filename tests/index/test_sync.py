"""However a folder came to be what it is, its index is the one that would be made now, and encodes nothing twice."""

import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from diptych.errors import DataError, DiptychError, IndexFileError
from diptych.files import locked_file
from diptych.index import update
from diptych.index.entries import Filters
from diptych.index.sqlite import location
from diptych.index.sqlite.database import Database
from diptych.index.sqlite.store import Store
from diptych.index.sync import _absolute, rebuild, sync
from diptych.models.engines.engine import Encodings
from support.own_engine import OwnEngine, model_from


class Fake(OwnEngine):
    """Vectors from a hash of what is to be encoded; counts what it encodes."""

    address, identity, embedding_dim, is_inner_product = "fake", "", 8, True

    def __init__(self, identity="f" * 64, pause=0.0, sets=False):
        super().__init__()
        self.identity, self.pause, self.sets = identity, pause, sets
        self.seen = []

    def preprocess(self, photo):
        return np.asarray(photo.resize((6, 6)), np.uint8).transpose(2, 0, 1).copy()

    def encode_preprocessed(self, prepared):
        time.sleep(self.pause * len(prepared))
        return self.encodings([pixels.tobytes() for pixels in prepared])

    def encode_texts(self, texts):
        return self.encodings([text.encode() for text in texts])

    def encodings(self, contents):
        self.seen += contents
        vectors = np.stack([np.frombuffer(hashlib.sha256(content).digest(), np.uint8)[:8] for content in contents])
        vectors = vectors.astype(np.float32) / 256
        return Encodings(vectors, tuple(row[None] for row in vectors) if self.sets else None)


CLOCK = iter(range(10**18, 10**19, 10**9))  # every change has a time of its own


def draw(number, size=(12, 9)):
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8))


def put(path, content):
    """Write a file: an image by its number, or bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, int):
        draw(content).save(path, "PNG")
    else:
        path.write_bytes(content)
    moment = next(CLOCK)
    os.utime(path, ns=(moment, moment))


def never():
    raise AssertionError("the model was opened")


def view(path):
    """Everything an index holds, without the ids, which depend on its history."""
    store = Store.open(path)
    images, vectors = store.vectors("image")
    captions = store.captions(images)
    texts, text_vectors = store.vectors("text")
    encoded = {entry.text: vector.tobytes() for entry, vector in zip(store.entries(texts), text_vectors, strict=True)}
    found = {
        entry.key: (
            *(vector.tobytes(), captions[entry.id], [encoded[text] for text in captions[entry.id]], entry.path),
            *(entry.folder, entry.taken, entry.width, entry.height, entry.split, store.thumbnail(entry.id)),
        )
        for entry, vector in zip(store.entries(images), vectors, strict=True)
    }
    contents = store.database.rows("SELECT kind, hash, checksum, look FROM contents ORDER BY kind, hash")
    problems = store.problems()
    store.close()
    return found, contents, problems


def ids(path):
    store = Store.open(path)
    found = {entry.key: entry.id for entry in store.entries(store.vectors("image")[0])}
    store.close()
    return found


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for number in range(9):
        put(folder / ("sub" if number % 2 else ".") / f"{number}.png", number)
    put(folder / "0.txt", b"a dog\n\na  cat\na dog\n")
    return folder


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
        model = Fake()
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


def sync_now(folder, path):
    path.unlink(missing_ok=True)
    sync(Fake(), str(folder), path, workers=0)
    return path


def test_a_renamed_image_keeps_its_entry_and_a_changed_one_too(photos, tmp_path):
    index, model = tmp_path / "index", Fake()
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
    assert (result.encoded, result.kept, result.renamed, result.removed) == (1, 7, 1, 1)
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
    result = sync(Fake(), str(photos), tmp_path / "index", storage="float32")
    assert (result.encoded, result.problems) == (9, 3)
    found, _, problems = view(tmp_path / "index")
    for number in range(9):
        vector, texts, text_vectors, *_ = found[f"sub/{number}.png" if number % 2 else f"{number}.png"]
        model = Fake()
        assert vector == model.encode_preprocessed([model.preprocess(draw(number))]).vectors.tobytes()
        assert texts == [f"text {number}"]
        assert text_vectors == [model.encode_texts(texts).vectors.tobytes()]
    assert [key for key, _ in problems] == ["1broken.jpg", "3broken.jpg", "5broken.jpg"]
    assert problems[0][1] == "an empty file (0 bytes); copy it again"
    assert "not an image in a known format" in problems[1][1]
    put(photos / "1broken.jpg", 77)  # one that was mended is no problem any more
    assert sync(Fake(), str(photos), tmp_path / "index").problems == 2


def test_the_day_and_the_upright_size_of_a_photo_are_indexed(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8769)[0x9003] = "2019:03:04 05:06:07"
    (tmp_path / "photos").mkdir()
    draw(0, (700, 400)).save(tmp_path / "photos" / "a.jpg", exif=exif)
    sync(Fake(sets=True), str(tmp_path / "photos"), tmp_path / "index")
    store = Store.open(tmp_path / "index")
    (entry,) = store.entries(store.vectors("image")[0])
    assert (entry.taken, entry.width, entry.height) == ("2019-03-04", 400, 700)
    assert Image.open(io.BytesIO(store.thumbnail(entry.id))).size == (183, 320)
    assert np.allclose(store.sets([entry.id])[0], store.vectors("image")[1], atol=1e-3)
    store.close()


def test_a_killed_sync_continues(tmp_path, monkeypatch):
    folder, index = tmp_path / "photos", tmp_path / "index"
    for number in range(24):
        put(folder / f"{number:02}.png", number)
        put(folder / f"{number:02}.txt", f"text {number % 7}".encode())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # for the helpers in tests/support
    worker = subprocess.Popen([sys.executable, __file__, str(folder), str(index)], env=environment)
    deadline = time.monotonic() + 60
    while worker.poll() is None and time.monotonic() < deadline and not (index.exists() and 4 <= len(ids(index)) < 24):
        time.sleep(0.01)
    worker.kill()
    worker.wait()
    done = len(ids(index))
    assert 4 <= done < 24
    model = Fake()
    result = sync(model, str(folder), index)
    assert result.encoded == 24 - done
    assert result.kept == done
    assert view(index) == view(sync_now(folder, tmp_path / "now"))


def test_an_interrupted_sync_finishes_its_transaction(photos, tmp_path):
    def interrupt(done, _total):
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    result = sync(Fake(), str(photos), tmp_path / "index", workers=0, progress=interrupt)
    assert result.interrupted
    assert result.encoded == len(ids(tmp_path / "index")) == 4
    assert sync(Fake(), str(photos), tmp_path / "index").encoded == 5
    assert view(tmp_path / "index") == view(sync_now(photos, tmp_path / "now"))


def test_a_full_disk_is_one_line_and_finished_work_stays(photos, tmp_path, monkeypatch):
    opened = Database._open
    for number in range(9):
        draw(number, (320, 240)).save(photos / f"large-{number}.bmp")

    def small(self, mode):
        connection = opened(self, mode)
        ((pages,),) = connection.execute("PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        return connection

    monkeypatch.setattr(update, "IMAGES_PER_TRANSACTION", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "_open", small)
        with pytest.raises(IndexFileError, match="the disk is full; free some space and run the command again"):
            sync(Fake(), str(photos), tmp_path / "index")
    assert 0 < len(ids(tmp_path / "index")) < 18
    sync(Fake(), str(photos), tmp_path / "index")
    assert view(tmp_path / "index") == view(sync_now(photos, tmp_path / "now"))


def test_nothing_is_removed_because_a_disk_is_not_connected(photos, tmp_path, monkeypatch):
    index = tmp_path / "index"
    sync(Fake(), str(photos), index)
    before = view(index)
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = sync(Fake(), str(photos), index)
    assert (result.kept, result.removed, result.problems) == (9, 0, 1)
    model = model_from(Fake, "fake", lambda: Fake().identity)
    with pytest.raises(DataError, match=r"sub.* cannot be read, and its images would be lost"):
        rebuild(index, model)
    monkeypatch.undo()
    assert sync(Fake(), str(photos), index).problems == 0
    photos.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"cannot be read \(No such file.*is its disk connected\? Nothing was changed"):
        sync(Fake(), str(photos), index)
    photos.mkdir()
    with pytest.raises(DataError, match=r"contains no image, but the index has 9; is its disk connected\?"):
        sync(Fake(), str(photos), index)
    with pytest.raises(DataError, match="contains no image, but the index has 9"):
        rebuild(index, model)
    assert view(index) == before
    with pytest.raises(DataError, match="contains no files, so there is nothing to index"):
        sync(Fake(), str(photos), index, fresh=True)
    assert view(index) == before


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
    sync(Fake(), str(photos), tmp_path / "index")
    found, _, problems = view(tmp_path / "index")
    assert len(found) == 10
    assert found["within.png"][0] == found["sub/1.png"][0]
    assert found["2.png"][1] == []
    assert {key: reason.split(";")[0] for key, reason in problems} == {
        **dict.fromkeys(("2.txt", "out.png", "outside"), "a link that leaves the folder"),
        "nothing.png": "no such file, or a link to nothing",
    }


def test_a_corpus_keeps_its_splits_texts_and_columns(tmp_path):
    sync(Fake(), "scenes:train=4,val=2,test=3,texts=2,images=2", tmp_path / "scenes", storage="int8")
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
    first = sync(Fake(), str(shop), tmp_path / "index")
    assert (first.encoded, first.problems) == (2, 1)
    store = Store.open(tmp_path / "index")
    assert store.spec.root == str(shop / "images")
    assert store.columns() == ["Colour", "price"]
    (entry,) = store.entries(store.matching("image", Filters(columns=(("price", "5"), ("Colour", "red")))))
    assert (entry.key, entry.path, entry.split) == ("0.png", str(shop / "images" / "0.png"), "train")
    assert store.captions([entry.id]) == {entry.id: ["a cup", "a mug"]}
    store.close()
    (shop / "captions.csv").write_text(rows.replace("red", "green").replace("a mug", "a beaker"))
    second = sync(Fake(), str(shop), tmp_path / "index")
    assert (second.encoded, second.texts_encoded, second.kept, second.problems) == (0, 1, 2, 0)
    table = sync(model_from(Fake, "fake", lambda: "f" * 64), str(shop / "captions.csv"), tmp_path / "by-file")
    assert table.encoded == 2
    np.save(tmp_path / "test_ims.npy", np.ones((5, 4), np.float32))
    (tmp_path / "test_caps.txt").write_text("a b\n" * 25)
    with pytest.raises(DataError, match="has stored features but no pictures, which an index needs"):
        sync(Fake(), str(tmp_path), tmp_path / "features")


def test_plain_columns_of_parquet_are_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    put(tmp_path / "0.png", 0)
    table = {"image": ["0.png"], "text": ["a cup"], "price": [5], "bytes": [b"x"], "tags": [["a"]], "shop": [None]}
    parquet.write_table(pyarrow.table(table), tmp_path / "shop.parquet")
    sync(Fake(), str(tmp_path / "shop.parquet"), tmp_path / "index")
    store = Store.open(tmp_path / "index")
    assert [dict(entry.columns) for entry in store.entries(store.vectors("image")[0])] == [{"price": "5"}]
    store.close()


def refused(*arguments, **options):
    with pytest.raises(DiptychError) as error:
        sync(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_models_sources_and_storage_types_are_not_mixed(photos, tmp_path, monkeypatch):
    index, address = tmp_path / "my index", str(photos)
    sync(Fake(), address, index)
    before = view(index)
    other = refused(Fake("e" * 64), address, index)
    assert "made by another model (fake, ffffffff)" in other
    assert other.endswith(f"diptych index rebuild '{index}' --run fake")
    assert refused(Fake(), "scenes:test=1,val=1,train=1", index).endswith(f"train=1 --into '{index}' --fresh")
    assert refused(Fake(), address, index, storage="int8").endswith("--storage int8 --fresh")
    monkeypatch.setattr(location, "LOCK_TIMEOUT", 0.05)
    with locked_file(index, IndexFileError):
        assert f"process {os.getpid()} is writing to it" in refused(Fake(), address, index)
    (tmp_path / "letter.doc").write_text("dear")
    assert "not replaced, because it may not be an index" in refused(
        Fake(), address, tmp_path / "letter.doc", fresh=True
    )
    assert "is a folder; name a file" in refused(Fake(), address, tmp_path)
    assert view(index) == before


def test_rebuilding_leaves_the_old_file_until_the_new_one_is_complete(photos, tmp_path):
    index = tmp_path / "an.diptych"
    sync(Fake(), str(photos), index, storage="int8")
    before = index.read_bytes()
    reader = Store.open(index)
    model = model_from(lambda: Fake("e" * 64), "fake", lambda: "e" * 64)

    def interrupt(done, _total):
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    assert rebuild(index, model, workers=0, progress=interrupt).interrupted
    assert index.read_bytes() == before
    assert rebuild(index, model).encoded == 5  # it continues
    assert reader.spec.identity == "e" * 64
    assert reader.spec.storage == "int8"
    assert reader.counts()["image"] == 9
    reader.close()
    index.write_bytes(b"x" * 5000)
    with pytest.raises(IndexFileError, match=r"too damaged to read.*diptych index fake SOURCE --into .* --fresh"):
        rebuild(index, model)
    assert sync(Fake(), str(photos), index, fresh=True).encoded == 9
    assert sorted(file.name for file in tmp_path.iterdir()) == ["an.diptych", "an.diptych.damaged", "photos"]


def favourites(index):
    """The keys of the favourites."""
    store = Store.open(index)
    keys = {entry.key for entry in store.entries(store.matching("image", Filters(album=0)))}
    store.close()
    return keys


def mark(index, *keys):
    """Make images favourites."""
    known = ids(index)
    store = Store.open(index)
    with store.edit_albums() as edit:
        edit.add(0, [known[key] for key in keys])
    store.close()


@pytest.mark.parametrize("again", [sync, lambda model, _, index: rebuild(index, model)], ids=["sync", "rebuild"])
def test_favourites_survive_edits_and_renames(photos, tmp_path, again):
    index, model = tmp_path / "index", Fake()
    sync(model, str(photos), index)
    mark(index, "2.png", "4.png", "6.png")
    put(photos / "2.png", 20)  # edited
    (photos / "4.png").rename(photos / "four.png")
    (photos / "6.png").unlink()
    again(model, str(photos), index)
    assert favourites(index) == {"2.png", "four.png"}
    put(photos / "back.png", 6)
    again(model, str(photos), index)
    assert favourites(index) == {"2.png", "four.png", "back.png"}


@pytest.mark.parametrize("again", [sync, lambda model, _, index: rebuild(index, model)], ids=["sync", "rebuild"])
def test_renumbered_images_do_not_pass_favourites_on(photos, tmp_path, again):
    index, model = tmp_path / "index", Fake()
    sync(model, str(photos), index)
    mark(index, "2.png")
    (photos / "6.png").unlink()
    (photos / "4.png").rename(photos / "6.png")
    (photos / "2.png").rename(photos / "4.png")
    put(photos / "2.png", 30)  # a new one in front
    again(model, str(photos), index)
    assert favourites(index) == {"4.png"}


if __name__ == "__main__":
    update.IMAGES_PER_TRANSACTION = 2
    sync(Fake(pause=0.05), sys.argv[1], sys.argv[2], workers=1)


def test_the_folder_in_the_address_of_a_pair_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    monkeypatch.chdir(tmp_path)
    assert _absolute("open_clip:ViT-B-32/weights") == f"open_clip:ViT-B-32/{tmp_path / 'weights'}"
    for address in ("open_clip:ViT-B-32/openai", "starter"):
        assert _absolute(address) == address
    assert _absolute("weights") == str(tmp_path / "weights")


class Views(Fake):
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
        sync(Fake(), str(photos), file, quality=quality)
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
    index, model = tmp_path / "index", Fake()
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

    first = sync(Fake(), str(photos), tmp_path / "index", workers=0, ocr=True, progress=interrupt)
    assert (first.interrupted, first.encoded, first.words_read) == (True, 9, 4)
    assert sync(Fake(), str(photos), tmp_path / "index").words_read == 5
