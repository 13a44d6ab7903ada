"""Records: everything that statistics need survives on disk, and damage is noticed."""

import numpy as np
import pytest

from diptych.errors import RunError
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.significance import draw_metrics
from diptych.evaluation.protocols.within_modality import WithinModalityRanks
from diptych.reproduction.records import (
    DRAWS,
    QueryRanks,
    Record,
    RecordHeader,
    all_headers,
    has_record,
    phrase_metrics,
    read_header,
    text_metrics,
)

HEADER = RecordHeader(
    key="vse-0-abc", title="a run", diptych="1", corpus="d", recipe={"seed": 0}, metrics={"rsum": 1.0}, curve=(1.0, 2.0)
)


def some_ranks(seed=0, images=30):
    random = np.random.default_rng(seed)
    groups = np.arange(images) + 7
    found = random.integers(1, 40, images), random.integers(1, 40, 2 * images)
    return Ranks(*found, groups, np.repeat(groups, 2), np.arange(images), np.arange(2 * images))


def within(ranks):
    return WithinModalityRanks(ranks.texts, ranks.text_groups, ranks.text_rows, 0)


def phrases(seed=0):
    random = np.random.default_rng(seed)
    ranks = random.integers(1, 20, 40).astype(float)
    ranks[::7] = np.inf
    return GroundingResult(ranks, np.repeat(np.arange(10), 4), [()] * 40, np.arange(40), np.zeros((40, 4), np.float32))


def test_a_record_reads_back_with_the_same_draws(tmp_path):
    ranks = some_ranks()
    record = Record.of(HEADER, QueryRanks(ranks, within(ranks)))
    assert not has_record(tmp_path, HEADER.key)
    record.save(tmp_path)
    again = Record.load(tmp_path, HEADER.key)
    assert again.header == HEADER.model_copy(update={"arrays": again.header.arrays})
    drawn = draw_metrics([ranks], (1, 5, 10), DRAWS, 0)
    for name in ("rsum", "i2t_r1", "t2i_r10"):
        assert np.array_equal(again.drawn[name], drawn[name])
    texts = draw_metrics([some_texts(ranks)], (1, 5, 10), DRAWS, 0)
    assert np.array_equal(again.drawn["t2t_r5"], texts["i2t_r5"])
    assert again.queries("rsum") == record.queries("rsum")
    assert has_record(tmp_path, HEADER.key)
    assert [header.key for header in all_headers(tmp_path)] == [HEADER.key]
    assert not list(all_headers(tmp_path / "none"))


def some_texts(ranks):
    return Ranks(ranks.texts, ranks.texts, ranks.text_groups, ranks.text_groups, ranks.text_rows, ranks.text_rows)


def test_phrases_keep_their_ranks_also_those_that_are_never_found(tmp_path):
    found = phrases()
    Record.of(HEADER, QueryRanks(phrases=found)).save(tmp_path)
    drawn = Record.load(tmp_path, HEADER.key).drawn
    assert list(drawn) == ["phrase_r1", "phrase_r5", "phrase_r10", "phrase_sum"]
    assert np.array_equal(drawn["phrase_r1"], found.bootstrap_metrics[:, 0])
    assert np.array_equal(drawn["phrase_sum"], found.bootstrap_metrics[:, 3])
    assert phrase_metrics(found).keys() == drawn.keys()


def test_text_metrics_are_recalls_in_percent():
    ranks = WithinModalityRanks(np.array([1, 3, 7, 20]), np.zeros(4, np.int64), np.arange(4), 0)
    assert text_metrics(ranks) == {"t2t_r1": 25.0, "t2t_r5": 50.0, "t2t_r10": 75.0}


def test_queries_tell_other_test_data_apart():
    records = [Record.of(HEADER, QueryRanks(some_ranks(seed, images))) for seed, images in ((0, 30), (1, 30), (0, 29))]
    assert records[0].queries("rsum") == records[1].queries("rsum") != records[2].queries("rsum")


def test_damage_is_noticed(tmp_path):
    Record.of(HEADER, QueryRanks(some_ranks())).save(tmp_path)
    arrays, header = tmp_path / "vse-0-abc.npz", tmp_path / "vse-0-abc.json"
    content = arrays.read_bytes()
    arrays.write_bytes(content[:-1])
    with pytest.raises(
        RunError, match=r"vse-0-abc.npz: not the file .* delete .*vse-0-abc.json to train the run again"
    ):
        Record.load(tmp_path, HEADER.key)
    arrays.unlink()
    with pytest.raises(RunError, match="cannot be read"):
        Record.load(tmp_path, HEADER.key)
    header.write_text('{"key": 1}')
    with pytest.raises(RunError, match=r"vse-0-abc.json: not a record"):
        read_header(tmp_path, HEADER.key)
