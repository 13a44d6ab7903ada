"""An address names a backend, and a backend in memory answers as the file does."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.errors import DiptychError, IndexFileError
from diptych.index.backend import locate
from diptych.index.entries import Filters, SearchRequest
from diptych.index.search import Searcher, open_store
from diptych.index.sqlite.location import SQLiteLocation
from diptych.index.status import status
from diptych.index.sync import rebuild, sync
from support.pictures import save_photo

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin" / "src"


@pytest.fixture
def memory(own_modules, monkeypatch):
    """The backend of the example package, with no index yet."""
    monkeypatch.syspath_prepend(EXAMPLE)
    for module in [name for name in sys.modules if name.split(".")[0] == "diptych_example"]:
        monkeypatch.delitem(sys.modules, module)
    own_modules.register("index_backends", "memory", "diptych_example.memory:MemoryLocation")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "sea").mkdir(parents=True)
    for number in range(12):
        save_photo(folder / ("sea" if number % 3 else ".") / f"{number}.png", number)
        (folder / ("sea" if number % 3 else ".") / f"{number}.txt").write_text(f"photo {number}\nof a dog\n")
    shutil.copy(folder / "0.png", folder / "sea" / "copy.png")
    (folder / "broken.jpg").write_bytes(b"no photo")
    return folder


def shown(store, hit):
    """The keys of what a hit shows; which of equal ones represents them depends on the ids."""
    return sorted(entry.key for entry in store.entries([hit.entry.id, *hit.near]))


def answers(store, model):
    """What a search finds, with keys instead of ids, which backends number as they like."""
    searcher = Searcher(store, model, ivf="never")
    places = [(to, filters) for to in ("image", "text") for filters in (Filters(), Filters("sea"))]
    requests = [SearchRequest(to, 5, filters, mode="meaning") for to, filters in places]
    for request in requests:
        for answer in searcher.search_texts(["photo 3", "a dog"], request):
            yield answer.searched, [(shown(store, hit), round(hit.score, 4), hit.stands_out) for hit in answer.hits]
    (first, *_) = searcher.search_texts(["photo 3"], SearchRequest(k=1, mode="meaning"))[0].hits
    similar = searcher.search_similar(first.entry.id, SearchRequest(k=20)).hits
    yield [(shown(store, hit), len(hit.near), hit.entry.width) for hit in similar]


def facts(store):
    yield store.counts(), store.problems(), store.folders(), store.splits(), store.columns(), store.image_stamps()
    ids = sorted(store.vectors("image")[0].tolist(), key=lambda id: store.entries([id])[0].key)
    yield [replace(entry, id=0, image=0) for entry in store.entries(ids)]
    yield [store.captions([id])[id] for id in ids], store.looks(ids).tolist(), [store.thumbnail(id) for id in ids]
    yield {name: value for name, value in status(store).items() if name not in ("file", "bytes", "synced", "caches")}


def life_of(place, photos, more, model):
    """Results of syncs of all kinds, and answers and facts between them, for an index at a place."""
    found = [sync(model, str(photos), place, workers=0)]
    yield
    found += [sync(model, str(photos), place, workers=0), sync(model, str(photos), place, workers=0)]
    store = open_store(place)
    found += [*answers(store, model), *facts(store)]
    found.append(sync(model, str(photos), place, workers=0, fresh=True))
    found += [*answers(open_store(place), model)]
    found.append(rebuild(place, model, workers=0))
    found += [list(locate(place).examine())]
    found.append(sync(model, [str(photos), str(more)], place, workers=0))
    found += [*answers(open_store(place), model), *facts(open_store(place))]
    store.close()
    yield found


def check_backend_answers_as_the_file(place, photos, tmp_path, model):
    (tmp_path / "more").mkdir()
    save_photo(tmp_path / "more" / "more.png", 99)
    lives = [life_of(where, photos, tmp_path / "more", model) for where in (place, str(tmp_path / "photos.diptych"))]
    for life in lives:
        next(life)
    (photos / "sea" / "1.png").rename(photos / "renamed.png")
    (photos / "sea" / "2.png").unlink()
    (photos / "3.txt").write_text("of a dog\nphoto 33\n")
    results = [next(life) for life in lives]
    for one, other in zip(*results, strict=True):
        assert one == other
    assert results[0][1].renamed == 1
    assert results[0][1].removed == 1
    assert results[0][1].texts_encoded == 1


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("sets", [(), ("image", "text")])
def test_a_backend_in_memory_answers_as_the_file_does(photos, tmp_path, sets, kit):
    check_backend_answers_as_the_file("memory://photos", photos, tmp_path, kit.FakeModel(not sets, sets))


@pytest.mark.long
@pytest.mark.parametrize("is_inner_product", [True, False])
def test_an_index_in_milvus_answers_as_the_file_does(photos, tmp_path, is_inner_product, milvus_address, kit):
    check_backend_answers_as_the_file(milvus_address, photos, tmp_path, kit.UnitModel(is_inner_product))


@pytest.mark.usefixtures("memory")
def test_a_failed_transaction_changes_nothing(photos, kit):
    sync(kit.FakeModel(), str(photos), "memory://photos", workers=0)
    store = open_store("memory://photos")
    before, generation = list(facts(store)), store.generation
    writer = store.writer({"0.png"})
    with pytest.raises(ZeroDivisionError), writer.transaction():
        writer.finish({}, ())
        assert store.counts()["image"] == 12
        _ = 1 / 0
    assert (list(facts(store)), store.generation) == (before, generation)


@pytest.mark.usefixtures("memory")
def test_what_cannot_be_opened(own_modules, photos, kit):
    own_modules.register("index_backends", "broken", "no_such_module:Location")
    for address, told in [
        (
            "qdrant://host/photos",
            "qdrant://host/photos: no index backend 'qdrant' is installed; known: broken, memory",
        ),
        ("memoir://photos", "did you mean 'memory'?"),
        ("memory://", r"memory://: not an address of 'memory' (ValueError: write memory://NAME)"),
        ("memory://none", "memory://none: no such index in this process"),
        ("broken://x", "broken://x: the plug-in 'broken' of an unknown package cannot be loaded (ModuleNotFoundError"),
    ]:
        with pytest.raises(IndexFileError) as raised:
            open_store(address)
        assert told in str(raised.value)
    sync(kit.FakeModel(), str(photos), "memory://photos", workers=0)
    with pytest.raises(DiptychError, match="memory://photos keeps no caches; leave it out"):
        Searcher(open_store("memory://photos"), kit.FakeModel(), ivf="always")


def test_without_a_plugin_the_message_says_so(own_modules):
    with pytest.raises(IndexFileError, match="'qdrant' is installed; install a package that offers it, or name"):
        locate("qdrant://host")


@pytest.mark.parametrize("address", ["photos.diptych", Path("memory://x"), "C:/photos", "a:b", "://x", "/a/b://c"])
def test_everything_else_is_a_path(own_modules, address):
    assert locate(address) == SQLiteLocation(Path(address))
