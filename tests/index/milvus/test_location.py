"""A name that stands for one of two collections; another model, other thumbnails, and what is in the way."""

from contextlib import closing

import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.backend import locate
from diptych.index.entries import SearchRequest
from diptych.index.milvus.client import Client
from diptych.index.milvus.schema import create_collection
from diptych.index.search import Searcher, open_store
from diptych.index.sync import sync
from support.photo_folders import put as put_file

pytestmark = pytest.mark.long


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        put_file(tmp_path / "photos" / f"{number}.png", number)
    return tmp_path / "photos"


def test_replaced_at_once_for_those_who_search_it(milvus_address, folder, kit):
    model, place = kit.UnitModel(), locate(milvus_address)
    sync(model, str(folder), milvus_address, workers=0)
    with closing(place.open()) as store:
        searcher = Searcher(store, model)
        assert searcher.search_texts(["dog"], SearchRequest())[0].searched == 3
        first = store.instance
        put_file(folder / "3.png", 3)
        sync(model, str(folder), milvus_address, workers=0, fresh=True)
        answer = searcher.search_texts(["dog"], SearchRequest())[0]
        assert (answer.searched, len({hit.entry.key for hit in answer.hits})) == (4, 4)
        assert store.instance != first
        assert not place.replacement().exists()
        other = kit.UnitModel()
        other.identity = "another"
        with pytest.raises(IndexFileError, match="made by another model"):
            sync(other, str(folder), milvus_address, workers=0)
        with pytest.raises(IndexFileError, match="made by another model"):
            Searcher(store, other)
        with place.locked(), pytest.raises(IndexFileError):
            sync(model, str(folder), milvus_address, workers=0)
        place.remove()
        assert not store.exists()
        with pytest.raises(IndexFileError, match="no such index; make one"):
            searcher.search_texts(["dog"], SearchRequest())
    with pytest.raises(IndexFileError, match="no such index; make one"):
        open_store(milvus_address)


def test_a_replacement_that_is_stopped_in_the_middle_leaves_the_index_as_it_was(
    milvus_address, folder, kit, monkeypatch
):
    place, model = locate(milvus_address), kit.UnitModel()
    sync(model, str(folder), milvus_address, workers=0)
    call = Client.call

    def stop(self, method, *args, **options):
        if method in ("drop_alias", "alter_alias"):
            stopped.append(method)
        if len(stopped) == 2:
            raise KeyboardInterrupt
        return call(self, method, *args, **options)

    stopped = []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Client, "call", stop)
        sync(model, str(folder), milvus_address, workers=0, fresh=True)
    assert not place.replacement().exists()
    with closing(place.open()) as store:
        assert store.collection == f"{place.name}__1"
        assert store.counts()["image"] == 3
    assert sync(model, str(folder), milvus_address, workers=0, fresh=True).encoded == 3
    with closing(place.open()) as store:
        assert store.collection == f"{place.name}__3"
        assert not [name for name in store.client.call("list_collections") if name == f"{place.name}__2"]


def test_collections_in_the_way_are_dropped_only_if_they_were_left_by_an_index(milvus_address, folder, kit):
    place, model = locate(milvus_address), kit.UnitModel()
    client = Client(place.address)
    foreign, left = f"{place.name}__7", f"{place.name}__1"
    with closing(client):
        schema, _ = client.prepare()
        schema.add_field("id", client.types.INT64, is_primary=True)
        schema.add_field("vector", client.types.FLOAT_VECTOR, dim=2)
        client.slowly("create_collection", foreign, schema=schema)
        create_collection(client, left, 2)
        sync(model, str(folder), milvus_address, workers=0)
        assert client.real_name(place.name) == f"{place.name}__8"
        assert client.real_name(foreign) == foreign
        assert client.real_name(left) is None
        sync(model, str(folder), milvus_address, workers=0, fresh=True)
        assert client.real_name(place.name) == f"{place.name}__9"
        client.slowly("drop_collection", foreign)


def test_thumbnails_in_a_folder_follow_the_index(milvus_address, folder, tmp_path, kit):
    small = tmp_path / "small"
    sync(kit.UnitModel(), str(folder), f"{milvus_address}&thumbnails={small}", workers=0)
    assert len(list(small.rglob("*.jpg"))) == 3
    with closing(open_store(milvus_address)) as store:  # the index remembers the place
        ids = store.vectors("image")[0]
        (folder / "0.png").unlink()
        assert all(store.thumbnail(id) for id in ids)
    sync(kit.UnitModel(), str(folder), milvus_address, workers=0)
    assert len(list(small.rglob("*.jpg"))) == 2


def test_a_thumbnail_is_there_again_when_the_folder_of_the_photos_is(milvus_address, folder, kit):
    sync(kit.UnitModel(), str(folder), milvus_address, workers=0)
    with closing(open_store(milvus_address)) as store:
        id = int(store.vectors("image")[0][0])
        away = folder.rename(folder.with_name("away"))
        assert store.thumbnail(id) is None
        away.rename(folder)
        assert store.thumbnail(id).startswith(b"\xff\xd8")


def test_pictures_that_are_no_files_need_a_place_for_thumbnails(milvus_address, tmp_path, kit):
    scenes = "scenes:train=2,val=1,test=1"
    with pytest.raises(DataError, match="is not a file of its own"):
        sync(kit.UnitModel(), scenes, milvus_address, workers=0)
    found = sync(kit.UnitModel(), scenes, f"{milvus_address}&thumbnails={tmp_path}", workers=0, fresh=True)
    assert found.encoded == 4
    with closing(open_store(milvus_address)) as store:
        assert all(store.thumbnail(id).startswith(b"\xff\xd8") for id in store.vectors("image")[0])
