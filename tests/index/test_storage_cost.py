import numpy as np
import pytest

from diptych.index import storage_cost
from diptych.index.storage_cost import measure
from diptych.index.vectors import decode, encode


def test_less_precision_costs_more_and_none_costs_nothing():
    found = measure(np.random.default_rng(0).standard_normal((400, 64)).astype(np.float32))
    assert found["sample"] == 400
    assert found["float32"]["recall@10"] == 1
    assert 0.99 < found["float16"]["recall@10"] <= 1
    assert 0.8 < found["int8"]["recall@10"] < found["float16"]["recall@10"]


def test_it_is_the_share_of_nearest_neighbours_that_remain():
    vectors = np.random.default_rng(1).standard_normal((40, 5)).astype(np.float32)

    def nearest(stored):
        directions = stored.astype(np.float64) / np.linalg.norm(stored.astype(np.float64), axis=1, keepdims=True)
        orders = np.argsort(-(directions @ directions.T), axis=1).tolist()
        return [set([b for b in order if b != a][:10]) for a, order in enumerate(orders)]

    kept = nearest(decode(encode(vectors, "int8"), "int8", 5))
    wanted = np.mean([len(a & b) / 10 for a, b in zip(nearest(vectors), kept, strict=True)])
    assert measure(vectors)["int8"]["recall@10"] == pytest.approx(wanted)
    assert wanted < 1


def test_large_indexes_are_sampled(monkeypatch):
    monkeypatch.setattr(storage_cost, "ENTRIES", 60)
    monkeypatch.setattr(storage_cost, "QUERIES", 20)
    assert measure(np.random.default_rng(0).standard_normal((100, 8)).astype(np.float32))["sample"] == 20


@pytest.mark.parametrize("entries", [0, 1, 2])
def test_few_entries_lose_nothing(entries):
    found = measure(np.ones((entries, 4), np.float32))
    assert found["int8"]["recall@10"] == 1
    assert found["sample"] == entries
