"""What an index keeps when it is made again, and with what it is not mixed."""

import os
import signal

import pytest

from diptych.errors import DiptychError, IndexFileError
from diptych.files import locked_file
from diptych.index.entries import Filters
from diptych.index.sqlite import location
from diptych.index.sqlite.store import Store
from diptych.index.sync import rebuild, sync
from support.own_engine import model_from
from support.photo_folders import FakeModel, ids, put, view


def refused(*arguments, **options):
    with pytest.raises(DiptychError) as error:
        sync(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_models_sources_and_storage_types_are_not_mixed(photos, tmp_path, monkeypatch):
    index, address = tmp_path / "my index", str(photos)
    sync(FakeModel(), address, index)
    before = view(index)
    other = refused(FakeModel("e" * 64), address, index)
    assert "made by another model (fake, ffffffff)" in other
    assert other.endswith(f"diptych index rebuild '{index}' --run fake")
    assert refused(FakeModel(), "scenes:test=1,val=1,train=1", index).endswith(f"train=1 --into '{index}' --fresh")
    assert refused(FakeModel(), address, index, storage="int8").endswith("--storage int8 --fresh")
    monkeypatch.setattr(location, "LOCK_TIMEOUT", 0.05)
    with locked_file(index, IndexFileError):
        assert f"process {os.getpid()} is writing to it" in refused(FakeModel(), address, index)
    (tmp_path / "letter.doc").write_text("dear")
    assert "not replaced, because it may not be an index" in refused(
        FakeModel(), address, tmp_path / "letter.doc", fresh=True
    )
    assert "is a folder; name a file" in refused(FakeModel(), address, tmp_path)
    assert view(index) == before


def test_rebuilding_leaves_the_old_file_until_the_new_one_is_complete(photos, tmp_path):
    index = tmp_path / "an.diptych"
    sync(FakeModel(), str(photos), index, storage="int8")
    before = index.read_bytes()
    reader = Store.open(index)
    model = model_from(lambda: FakeModel("e" * 64), "fake", lambda: "e" * 64)

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
    assert sync(FakeModel(), str(photos), index, fresh=True).encoded == 9
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
    index, model = tmp_path / "index", FakeModel()
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
    index, model = tmp_path / "index", FakeModel()
    sync(model, str(photos), index)
    mark(index, "2.png")
    (photos / "6.png").unlink()
    (photos / "4.png").rename(photos / "6.png")
    (photos / "2.png").rename(photos / "4.png")
    put(photos / "2.png", 30)  # a new one in front
    again(model, str(photos), index)
    assert favourites(index) == {"4.png"}
