import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diptych.errors import DiptychError
from diptych.index import ivf
from diptych.index.exact import Pool

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def pool():
    random = np.random.default_rng(0)
    middles = random.standard_normal((20, 16))
    vectors = middles[random.integers(20, size=1200)] + 0.4 * random.standard_normal((1200, 16))
    return Pool(np.arange(1200) * 2, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))


@pytest.fixture(scope="module")
def built(pool, tmp_path_factory):
    file = ivf.cache_file(tmp_path_factory.mktemp("ivf") / "x.diptych", "image")
    return file, ivf.build(file, pool, pool.vectors[:50] + 0.05, "model", 7)


def test_it_finds_what_exact_search_finds(pool, built):
    _, found = built
    queries = pool.vectors[::40]
    rows = found.candidates(queries, 40)
    overlap = [
        len(np.intersect1d(pool.rank(query, own, 10, False).rows, exact.rows))
        for query, own, exact in zip(queries, rows, pool.top(queries, 10), strict=True)
    ]
    assert np.mean(overlap) / 10 >= 0.93
    assert found.header.recall >= ivf.RECALL
    assert 1 <= found.header.probes < found.header.cells


def test_only_allowed_rows_are_candidates(pool, built):
    allowed = np.arange(0, 1200, 3)
    for own in built[1].candidates(pool.vectors[:5], 30, allowed):
        assert len(own)
        assert np.isin(own, allowed).all()


def test_it_is_loaded_only_for_the_entries_it_was_built_from(pool, built):
    file, made = built
    again = ivf.load(file, pool, "model", 7)
    assert again.header == made.header
    assert all(
        np.array_equal(a, b)
        for a, b in zip(again.candidates(pool.vectors[:9], 20), made.candidates(pool.vectors[:9], 20), strict=True)
    )
    assert ivf.load(file, pool, "model", 8) is not None  # the index has changed, these entries have not
    assert ivf.load(file, pool, "another", 7) is None
    changed = Pool(pool.ids, pool.vectors + np.eye(1, 16, dtype=np.float32))
    assert ivf.load(file, changed, "model", 8) is None
    assert ivf.load(file, Pool(pool.ids + 1, pool.vectors), "model", 8) is None
    assert ivf.load(file, Pool(pool.ids[1:], pool.vectors[1:]), "model", 7) is None
    assert ivf.load(file.with_name("none"), pool, "model", 7) is None


@pytest.mark.parametrize("damage", [lambda b: b[:-100], lambda b: b[:5], lambda b: b"", lambda b: b[:-9] + b"x" * 9],
                         ids=["cut", "header", "empty", "bytes"])  # fmt: skip
def test_a_damaged_file_is_not_loaded(pool, built, tmp_path, damage):
    file = tmp_path / "x.diptych.image.ivf"
    file.write_bytes(damage(built[0].read_bytes()))
    assert ivf.load(file, pool, "model", 7) is None


def test_a_file_that_is_replaced_while_it_is_opened_is_not_used(pool, built, tmp_path, monkeypatch):
    file, other = tmp_path / "x.ivf", tmp_path / "other.ivf"
    shutil.copy(built[0], file)
    ivf.build(other, pool, pool.vectors[:50], "model", 8)
    map_file = ivf._map

    def replace_and_map(path, header):
        index = map_file(path, header)
        other.replace(path)
        return index

    monkeypatch.setattr(ivf, "_map", replace_and_map)
    assert ivf.load(file, pool, "model", 7) is None


def test_it_is_described_in_one_line(built, tmp_path):
    file, made = built
    spec = SimpleNamespace(identity="model")
    store = SimpleNamespace(cache_path=file.with_name("x.diptych"), spec=spec, generation=7)
    (line,) = ivf.describe(store)
    assert f"recall@10 {made.header.recall:.3f} against exact search (measured with " in line
    assert "1,200 entries" in line
    assert "older" not in line
    store.generation = 8
    assert "older than the index" in ivf.describe(store)[0]
    (tmp_path / "y.text.ivf").write_bytes(b"nothing")
    store.cache_path = tmp_path / "y"
    assert ivf.describe(store) == ["y.text.ivf: damaged; the next search builds it again"]
    store.cache_path = None  # a backend without caches
    assert ivf.describe(store) == []


def test_without_faiss_one_line_names_the_extra(pool, tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(ivf.importlib, "import_module", missing)
    with pytest.raises(DiptychError, match=r"pip install 'diptych\[faiss\]'"):
        ivf.build(tmp_path / "x", pool, pool.vectors[:0], "model", 1)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("entries", [1, 3, 40])
def test_a_cache_of_few_entries(entries, tmp_path):
    vectors = np.eye(entries, 8, dtype=np.float32)
    made = ivf.build(tmp_path / "x", Pool(np.arange(entries), vectors), vectors[:0], "model", 1)
    assert made.header.cells == 1
    assert len(made.candidates(vectors[:1], 100)[0]) == entries


def test_the_number_of_threads_is_left_as_it_was(pool, tmp_path, monkeypatch):
    """FAISS shares it with torch, whose results depend on it."""
    before = torch.get_num_threads()
    monkeypatch.setattr(ivf, "available_cores", lambda: before + 1)
    found = ivf.build(tmp_path / "x.image.ivf", pool, pool.vectors[:5], "model", 7)
    found.candidates(pool.vectors[:2], 5)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("codes", ["int8", "pq"])
def test_cells_stay_in_the_file(pool, tmp_path, codes):
    faiss = pytest.importorskip("faiss")
    file = ivf.cache_file(tmp_path / "x.diptych", "image", codes)
    made = ivf.build(file, pool, pool.vectors[:50] + 0.05, "model", 7, codes)
    assert made.method == {"int8": "ivf", "pq": "pq"}[codes]
    assert isinstance(faiss.downcast_InvertedLists(made.index.invlists), faiss.OnDiskInvertedLists)
    before = [rows.tolist() for rows in made.candidates(pool.vectors[:9], 20)]
    file.unlink()  # as when another process replaces it
    assert [rows.tolist() for rows in made.candidates(pool.vectors[:9], 20)] == before


def test_product_quantisation_scores_as_many_candidates_as_its_recall_needs(pool, tmp_path, monkeypatch):
    monkeypatch.setitem(ivf._RESCORED, "pq", 10)
    file = ivf.cache_file(tmp_path / "x.diptych", "image", "pq")
    made = ivf.build(file, pool, pool.vectors[:0], "model", 7, "pq")
    assert made.header.recall >= ivf.RECALL
    assert made.header.depth > 10
    assert len(made.candidates(pool.vectors[:1], 3)[0]) == made.header.depth


@pytest.mark.parametrize(("size", "count"), [(512, 64), (6, 1), (20, 2), (1, 1), (300, 30)])
def test_a_code_has_one_byte_per_eight_numbers(size, count):
    assert ivf._code_bytes(size) == count
