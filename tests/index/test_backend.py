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


def answers(store, model):
    """What a search finds, with keys instead of ids, which backends number as they like."""
    searcher = Searcher(store, model, ivf="never")
    requests = [SearchRequest(to, 5, filters) for to in ("image", "text") for filters in (Filters(), Filters("sea"))]
    for request in requests:
        for answer in searcher.search_texts(["photo 3", "a dog"], request):
            yield answer.searched, [(hit.entry.key, round(hit.score, 4), hit.stands_out) for hit in answer.hits]
    (first, *_) = searcher.search_texts(["photo 3"], SearchRequest(k=1))[0].hits
    similar = searcher.search_similar(first.entry.id, SearchRequest(k=20)).hits
    yield [(hit.entry.key, len(hit.near), hit.entry.folder, hit.entry.width) for hit in similar]


def facts(store):
    yield store.counts(), store.problems(), store.folders(), store.splits(), store.columns(), store.image_stamps()
    ids = sorted(store.vectors("image")[0].tolist(), key=lambda id: store.entries([id])[0].key)
    yield [replace(entry, id=0, image=0) for entry in store.entries(ids)]
    yield [store.captions([id])[id] for id in ids], store.looks(ids).tolist(), [store.thumbnail(id) for id in ids]
    yield {name: value for name, value in status(store).items() if name not in ("file", "bytes", "synced", "caches")}


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("sets", [(), ("image", "text")])
def test_a_backend_in_memory_answers_as_the_file_does(photos, tmp_path, sets, kit):
    save_photo(tmp_path / "more.png", 99)
    (tmp_path / "more").mkdir()
    (tmp_path / "more.png").rename(tmp_path / "more" / "more.png")
    model, places = kit.FakeModel(not sets, sets), ["memory://photos", str(tmp_path / "photos.diptych")]
    results = [[sync(model, str(photos), place, workers=0)] for place in places]
    (photos / "sea" / "1.png").rename(photos / "renamed.png")
    (photos / "sea" / "2.png").unlink()
    (photos / "3.txt").write_text("of a dog\nphoto 33\n")
    for place, found in zip(places, results, strict=True):
        found.append(sync(model, str(photos), place, workers=0))
        found.append(sync(model, str(photos), place, workers=0))
        store = open_store(place)
        found += [*answers(store, model), *facts(store)]
        found.append(sync(model, str(photos), place, workers=0, fresh=True))
        found += [*answers(open_store(place), model)]
        found.append(rebuild(place, model, workers=0))
        found += [list(locate(place).examine())]
        found.append(sync(model, [str(photos), str(tmp_path / "more")], place, workers=0))
        found += [*answers(open_store(place), model), *facts(open_store(place))]
        store.close()
    assert results[0] == results[1]
    assert results[0][1].renamed == 1
    assert results[0][1].removed == 1
    assert results[0][1].texts_encoded == 1


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
            "milvus://host/photos",
            "milvus://host/photos: no index backend 'milvus' is installed; known: broken, memory",
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
    with pytest.raises(DiptychError, match="memory://photos keeps no FAISS caches; leave it out"):
        Searcher(open_store("memory://photos"), kit.FakeModel(), ivf="always")


def test_without_a_plugin_the_message_says_so(own_modules):
    with pytest.raises(IndexFileError, match="'milvus' is installed; install a package that offers it, or name"):
        locate("milvus://host")


@pytest.mark.parametrize("address", ["photos.diptych", Path("memory://x"), "C:/photos", "a:b", "://x", "/a/b://c"])
def test_everything_else_is_a_path(own_modules, address):
    assert locate(address) == SQLiteLocation(Path(address))
