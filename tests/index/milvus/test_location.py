"""A name that stands for one of two collections; another model, other thumbnails, and what is in the way."""

from contextlib import closing

import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.backend import locate
from diptych.index.entries import SearchRequest
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


def test_pictures_that_are_no_files_need_a_place_for_thumbnails(milvus_address, tmp_path, kit):
    scenes = "scenes:train=2,val=1,test=1"
    with pytest.raises(DataError, match="is not a file of its own"):
        sync(kit.UnitModel(), scenes, milvus_address, workers=0)
    found = sync(kit.UnitModel(), scenes, f"{milvus_address}&thumbnails={tmp_path}", workers=0, fresh=True)
    assert found.encoded == 4
    with closing(open_store(milvus_address)) as store:
        assert all(store.thumbnail(id).startswith(b"\xff\xd8") for id in store.vectors("image")[0])
