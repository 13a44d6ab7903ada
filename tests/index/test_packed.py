import numpy as np
import pytest

from diptych.index import packed
from diptych.index.exact import Pool
from diptych.index.packed import PackedVectors, blocks, norms
from diptych.index.vectors import STORAGES, decode, encode

RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.standard_normal((90, 7)).astype(np.float32)


def pack(vectors, storage):
    return PackedVectors.unpacked(encode(vectors, storage), storage, vectors.shape[1])


def test_every_finite_float16_becomes_the_same_float32():
    bits = np.arange(2**16, dtype=np.uint16)
    codes = bits[(bits & 0x7C00) != 0x7C00].view(np.float16)  # without infinity and NaN
    out = np.empty(len(codes), np.float32)
    packed._widen(codes, out)
    assert np.array_equal(out.view(np.int32), codes.astype(np.float32).view(np.int32))  # the sign of zero, too


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("rows", [None, np.array([5, 0, 88])])
def test_rows_are_those_that_were_encoded(storage, rows):
    vectors, expected = pack(VECTORS, storage), decode(encode(VECTORS, storage), storage, 7)
    if rows is not None:
        vectors, expected = vectors.take(rows), expected[rows]
    assert vectors.shape == expected.shape
    assert np.array_equal(vectors[:], expected)
    assert np.array_equal(vectors[np.array([2, 1])], expected[[2, 1]])
    assert np.array_equal(vectors.take(np.array([1]))[:], expected[[1]])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("count", [1, 3])
def test_blocks_of_products_are_the_product(monkeypatch, storage, count):
    monkeypatch.setattr(packed, "_BUFFER", 7 * 16)  # blocks of 16 rows, the last one of 10
    vectors, queries = pack(VECTORS, storage), RANDOM.standard_normal((count, 7)).astype(np.float32)
    found = [(start, scores.copy()) for start, scores in vectors.products(queries)]
    assert [start for start, _ in found] == [0, 16, 32, 48, 64, 80]
    assert np.concatenate([scores for _, scores in found], 1) == pytest.approx(queries @ vectors[:].T, abs=1e-5)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("every", [1, 2, 30])  # all entries, a wide filter, a narrow one
@pytest.mark.parametrize("cosine", [False, True])
def test_search_finds_exactly_what_it_finds_in_float32(monkeypatch, storage, every, cosine):
    monkeypatch.setattr(packed, "_BUFFER", 7 * 64)
    random = np.random.default_rng(1)
    vectors = random.standard_normal((900, 7)).astype(np.float32)
    vectors[100:130] = vectors[0]  # equal entries have equal scores
    ids = np.arange(900) * 3
    ours, plain = Pool(ids, pack(vectors, storage)), Pool(ids, decode(encode(vectors, storage), storage, 7))
    ours, plain = ours.restricted(ids[::every]), plain.restricted(ids[::every])
    queries = np.concatenate([vectors[:1], random.standard_normal((4, 7))]).astype(np.float32)
    for some in (queries, queries[:1]):
        for a, b in zip(ours.top(some, 25, cosine), plain.top(some, 25, cosine), strict=True):
            assert ours.ids[a.rows].tolist() == plain.ids[b.rows].tolist()
            assert np.array_equal(a.scores, b.scores)


def test_a_narrow_filter_copies_nothing():
    pool = Pool(np.arange(90), pack(VECTORS, "float16"))
    assert pool.restricted(np.arange(5)).vectors.codes is pool.vectors.codes


def test_lengths_are_those_of_the_vectors_and_show_what_is_not_finite(monkeypatch):
    monkeypatch.setattr(packed, "_BUFFER", 7 * 16)
    assert np.array_equal(np.concatenate(list(blocks(VECTORS))), VECTORS)
    assert norms(pack(VECTORS, "float32")) == pytest.approx(np.linalg.norm(VECTORS, axis=1))
    assert norms(np.zeros((2, 7), np.float32)).tolist() == [1, 1]
    assert norms(np.zeros((0, 7), np.float32)).tolist() == []
    assert np.isnan(norms(np.full((1, 7), np.nan, np.float32))).all()
