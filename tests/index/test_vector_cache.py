import errno
import multiprocessing
import threading
from dataclasses import replace

import numpy as np
import pytest

from diptych.errors import IndexFileError
from diptych.files import locked_file
from diptych.index import vector_cache
from diptych.index.backend import Content
from diptych.index.entries import Filters, SearchRequest
from diptych.index.packed import PackedVectors
from diptych.index.search import Searcher
from diptych.index.sources.listing import ImageInfo
from diptych.index.sqlite.store import Store
from diptych.index.sqlite.writer import Writer
from diptych.index.status import status
from diptych.index.vector_cache import cache_file, load, packed_pool, read_header
from diptych.index.vectors import encode

NAMES = [f"photo {number}" for number in range(40)]


@pytest.fixture
def filled(kit, store):
    kit.put(store, NAMES, ["one", "two"])
    return store


def file_of(store):
    return cache_file(store.path, "image")


def is_mapped(pool):
    return not pool.vectors.codes.flags.owndata and not pool.vectors.codes.flags.writeable


def check(pool, store, kind="image"):
    """The pool has the ids and vectors of the index."""
    ids, vectors = store.vectors(kind)
    assert np.array_equal(pool.ids, ids)
    assert np.array_equal(pool.vectors[:], vectors)


def test_the_file_is_written_once_and_then_mapped(filled, monkeypatch):
    pool, failure = packed_pool(filled, "image")
    assert failure is None
    assert is_mapped(pool)
    check(pool, filled)
    with monkeypatch.context() as patch:
        patch.setattr(filled, "packed", None)  # nothing is read from the index again
        again, _ = packed_pool(filled, "image")
    assert is_mapped(again)
    check(again, filled)
    assert np.array_equal(again.norms, np.linalg.norm(again.vectors[:], axis=1))
    assert "40 vectors in float32 for searching" in status(filled)["caches"][0]


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_vectors_are_in_the_numbers_of_the_index(kit, tmp_path, storage):
    store = Store.create(tmp_path / "y.diptych", replace(kit.spec(), storage=storage))
    vectors = np.random.default_rng(0).standard_normal((5, kit.SIZE)).astype(np.float32)
    with store.database.transaction():
        writer = Writer(store, [])
        for number, vector in enumerate(encode(vectors, storage)):
            content = writer.add(Content("image", bytes([number]), vector, None))
            writer.put_image(f"{number}.jpg", content, (1, 0, ""), ImageInfo(None, (), None, {}))
    for pool in (
        packed_pool(store, "image")[0],
        packed_pool(store, "image")[0],
        vector_cache._in_memory(store, "image"),
    ):
        check(pool, store)
        assert pool.vectors.codes.dtype == {"float16": np.float16, "int8": np.int8}[storage]
    store.close()


def test_a_file_of_another_generation_is_written_again_and_the_old_map_stays(kit, filled):
    before, _ = packed_pool(filled, "image")
    kept = before.ids.copy(), before.vectors[:].copy()
    kit.put(filled, ["new"])
    assert "older than the index" in status(filled)["caches"][0]
    assert load(file_of(filled), filled, "image") is None
    after, _ = packed_pool(filled, "image")
    check(after, filled)
    assert len(after) == 41
    assert np.array_equal(before.ids, kept[0])  # a worker that has not noticed keeps what belongs together
    assert np.array_equal(before.vectors[:], kept[1])


def damage_header(content):
    return content.replace(b'"entries": 40', b'"entries": 39', 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:100],
        lambda content: content[:-1],
        lambda content: content + b"x",
        damage_header,
        lambda content: content[:4096] + bytes([content[4096] ^ 1]) + content[4097:],  # the first id
        lambda content: content[:8192] + bytes(len(content) - 8192),  # all vectors
    ],
)
def test_a_truncated_or_damaged_file_is_written_again(filled, damage):
    packed_pool(filled, "image")
    file = file_of(filled)
    whole = file.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    file.write_bytes(damaged)
    assert load(file, filled, "image") is None
    check(packed_pool(filled, "image")[0], filled)
    assert file.read_bytes() == whole


def test_a_file_of_another_index_with_the_same_generation_is_not_used(kit, filled, tmp_path):
    """Such as one of before a backup was restored."""
    packed_pool(filled, "image")
    other = Store.create(tmp_path / "other.diptych", kit.spec())
    kit.put(other, [f"another {number}" for number in range(40)], ["one", "two"])
    other.set_meta("generation", filled.generation)
    file_of(filled).rename(cache_file(other.path, "image"))
    assert read_header(cache_file(other.path, "image")).generation == other.generation
    assert load(cache_file(other.path, "image"), other, "image") is None
    check(packed_pool(other, "image")[0], other)
    other.close()


def test_a_file_that_cannot_be_written_is_said_and_vectors_are_in_memory(filled, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(vector_cache, "_write", full)
    pool, failure = packed_pool(filled, "image")
    check(pool, filled)
    assert isinstance(pool.vectors, PackedVectors)
    assert failure == f"{file_of(filled)}: cannot be written (No space left on device), so vectors are held in memory"
    assert not file_of(filled).exists()


def test_notes_of_a_searcher_say_that_vectors_are_in_memory(kit, filled, monkeypatch):
    monkeypatch.setattr(vector_cache, "_PATIENCE", 0.2)
    searcher = Searcher(filled, kit.FakeModel(), map_above=0)
    with locked_file(file_of(filled), IndexFileError):
        kit.search(searcher, kit.FakeModel().encode_texts(["photo 3"]), SearchRequest(k=3), "text")
    assert any("is writing to it" in note and "held in memory" in note for note in searcher.notes())


def test_a_damaged_index_is_not_hidden(filled):
    filled.database.rows("UPDATE contents SET vector = x'00' WHERE id = 7")
    with pytest.raises(IndexFileError, match="diptych index rebuild"):
        packed_pool(filled, "image")
    assert [file.name for file in filled.path.parent.glob("*vectors*")] == []


def test_an_entry_without_a_vector_is_not_replaced_by_another_one(filled):
    filled.database.rows("PRAGMA foreign_keys = OFF")
    filled.database.rows("DELETE FROM contents WHERE id = 7")
    with pytest.raises(IndexFileError, match=r"39 of 40 images have a vector; `diptych index rebuild"):
        packed_pool(filled, "image")
    with pytest.raises(IndexFileError, match="39 of 40"):
        vector_cache._in_memory(filled, "image")
    assert len(filled.vectors("image")[0]) == len(filled.vectors("image")[1]) == 39


def test_what_a_killed_process_left_is_removed(filled):
    leftover = file_of(filled).with_name(f".{file_of(filled).name}.abc.tmp")
    leftover.write_bytes(b"half")
    packed_pool(filled, "image")
    assert not leftover.exists()


def test_several_processes_write_it_once(filled, monkeypatch):
    written = []
    original = vector_cache._write
    monkeypatch.setattr(vector_cache, "_write", lambda *given: written.append(1) or original(*given))
    stores = [Store.open(filled.path) for _ in range(4)]
    threads = [threading.Thread(target=packed_pool, args=(store, "image")) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == [1]
    for store in stores:
        store.close()


def test_a_searcher_with_mapped_vectors_answers_as_one_without_and_follows_a_sync(kit, filled):
    model = kit.FakeModel()
    mapped, plain = Searcher(filled, model, map_above=0), Searcher(filled, model)
    requests = [SearchRequest(k=5), SearchRequest(k=5, filters=Filters(folder="a")), SearchRequest("text", k=2)]
    for turn in range(2):
        for request in requests:
            answers = [kit.search(one, model.encode_texts(["photo 7"]), request, "text") for one in (mapped, plain)]
            assert answers[0].hits
            assert answers[0] == answers[1]
        assert is_mapped(mapped._loaded.pool("image"))
        assert len(mapped._loaded.pool("image")) == 40 + turn
        kit.put(filled, [f"more {turn}"], folder="b")


def _search_until(path, changed, results):
    """A worker: searches with the old map, and again after the other process has synced."""
    store = Store.open(path)
    first, _ = packed_pool(store, "image")
    results.put(len(first))
    changed.wait(30)
    old = first.vectors[:].sum(), len(first.ids)
    second, _ = packed_pool(store, "image")
    ids, vectors = store.vectors("image")
    same = np.array_equal(second.ids, ids) and np.array_equal(second.vectors[:], vectors)
    results.put((len(second), bool(same), float(old[0]), old[1]))
    store.close()


def test_a_worker_with_the_old_map_takes_the_new_one_after_a_sync(kit, filled):
    context = multiprocessing.get_context("fork")
    changed, results = context.Event(), context.Queue()
    worker = context.Process(target=_search_until, args=(filled.path, changed, results))
    worker.start()
    assert results.get(timeout=30) == 40
    before = filled.vectors("image")[1].sum()
    kit.put(filled, ["new"])
    packed_pool(filled, "image")  # another process has already written the new file
    changed.set()
    assert results.get(timeout=30) == (41, True, float(before), 40)
    worker.join()
