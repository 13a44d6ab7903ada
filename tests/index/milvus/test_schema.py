import json

import pytest

from diptych.index.milvus import schema
from diptych.index.milvus.schema import any_of, content_id, literal, row_id, scan, search_parameters


def test_ids_depend_on_every_part_and_are_exact_in_json():
    ids = {
        row_id("image", "a"),
        row_id("text", "a"),
        row_id("text", "a", "b"),
        row_id("text", "ab"),
        row_id("image", "b"),
    }
    assert len(ids) == 5
    assert all(0 < id < 2**53 and int(float(id)) == id for id in ids)
    assert row_id("image", "a\udcff.jpg") != row_id("image", "a.jpg")
    assert 0 <= content_id("ff") < 2**63


def test_strings_and_numbers_in_expressions():
    assert json.loads(literal('a"\\\n😀')) == 'a"\\\n😀'
    assert any_of("id", [3, 4]) == "id in [3, 4]"
    assert any_of("hash", ["a", '"']) == 'hash in ["a", "\\""]'


def test_deeper_searches_are_more_thorough():
    assert search_parameters("HNSW", 10)["params"] == {"ef": 128}
    assert search_parameters("HNSW", 1000)["params"] == {"ef": 2000}
    assert search_parameters("HNSW", 16_384)["params"]["ef"] <= 32_768
    assert search_parameters("FLAT", 10)["params"] == {}
    assert search_parameters("IVF_SQ8", 10) == {"metric_type": "IP", "params": {"nprobe": 64}}


class Rows:
    """A client with rows of which it returns at most ten at a time, as Milvus does beyond its own limit."""

    def __init__(self, ids):
        self.ids = ids

    def count(self, *args, **options):
        return 1  # so that there is one range, which must be halved

    def query(self, collection, where, fields, partition, *, level):
        begin, end = (int(word) for word in where.replace("(a == 1)", "").split() if word.isdecimal())
        return [{"id": id} for id in self.ids if begin <= id < end][: schema.MOST]


@pytest.mark.parametrize("ids", [range(1, 100), [2**53 - 1 - n for n in range(50)], [1], []])
def test_all_rows_are_read_however_many(monkeypatch, ids):
    monkeypatch.setattr(schema, "MOST", 10)
    found = [row["id"] for row in scan(Rows(ids), "c", "image", ("id",), level="Strong", where="a == 1")]
    assert sorted(found) == sorted(ids)
