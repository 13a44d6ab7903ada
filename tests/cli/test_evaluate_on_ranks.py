"""`diptych evaluate` on several ranks: what one process measures, in shares."""

import json
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.cli.evaluation_options import EvaluationOptions
from diptych.cli.evaluation_protocols import measure
from diptych.cli.evaluation_sources import SourceEncoder
from diptych.data.open import open_corpus
from diptych.errors import RankError, ScoreError
from diptych.evaluation import resumable
from diptych.evaluation.runs import evaluate
from diptych.model import Model
from support.ranks import finish, on_threads, start, start_ranks

PLAIN = EvaluationOptions(
    split="test",
    folds=1,
    gallery=None,
    rerank_depths=[],
    retriever=None,
    cross_retrieval=False,
    score_overlap=False,
    average_precision=False,
    within=None,
    phrase_run=None,
    phrase_share=0.2,
    phrase_source="annotation",
    batch_statistics="running",
    report=False,
    baselines=False,
)


@pytest.fixture(scope="module")
def encoder(scenes):
    whole = open_corpus(scenes)
    return SourceEncoder(whole.split("test"), "cpu", 0, Path("features"), None, whole)


def on_ranks(count, sources, options, encoder):
    return on_threads(count, lambda ranks: measure(sources, options, replace(encoder, ranks=ranks)).json)


@pytest.mark.parametrize("changes", [{}, {"folds": 3}, {"gallery": 4}, {"average_precision": True}])
def test_all_ranks_have_the_result_of_one_process(encoder, tiny_run, changes, monkeypatch):
    """No rank has the encodings of all."""
    options = replace(PLAIN, **changes)
    expected = measure([str(tiny_run)], options, encoder).json
    monkeypatch.setattr(Model, "encode_corpus", None)
    assert on_ranks(2, [str(tiny_run)], options, encoder) == [expected] * 2


def test_files_and_ensembles_are_shared(encoder, tiny_run, tmp_path):
    encoder.encode(str(tiny_run)).save(tmp_path / "test.safetensors")
    sources = [str(tiny_run), str(tmp_path / "test.safetensors")]
    assert on_ranks(2, sources, PLAIN, encoder) == [measure(sources, PLAIN, encoder).json] * 2


def test_the_first_rank_alone_measures_what_needs_all_scores(encoder, tiny_run, tmp_path):
    options = replace(PLAIN, cross_retrieval=True, score_overlap=True)
    first, second = on_ranks(2, [str(tiny_run)], options, encoder)
    expected = measure([str(tiny_run)], options, encoder).json
    assert first == expected
    assert {"cross_retrieval", "overlap"} <= first.keys()
    assert second == {}


def test_baselines_are_measured_in_shares(encoder, tiny_run, monkeypatch):
    from diptych.report import baselines

    baseline = baselines.Baseline(Model.load(tiny_run, "cpu"), ("start",))
    monkeypatch.setattr(baselines, "open_baselines", lambda *_: [baseline])
    options = replace(PLAIN, baselines=True)
    expected = measure([str(tiny_run)], options, encoder).json
    assert expected["start"]["difference"]
    monkeypatch.setattr(Model, "encode_corpus", None)
    assert on_ranks(2, [str(tiny_run)], options, encoder) == [expected] * 2


def test_what_ranks_do_not_share_is_refused(encoder, tiny_run, tmp_path):
    np.save(tmp_path / "scores.npy", np.zeros((6, 12), np.float32))
    with pytest.raises(ScoreError, match="share retrieval by encodings only; remove --devices"):
        on_ranks(2, [str(tmp_path / "scores.npy")], PLAIN, encoder)
    with pytest.raises(ScoreError, match="remove --within"):
        on_ranks(2, [str(tiny_run)], replace(PLAIN, within="texts"), encoder)


def test_other_data_of_a_rank_is_named(encoder, tiny_run):
    corpora = [encoder.corpus, encoder.whole.split("val")]

    def refused(ranks):
        with pytest.raises(RankError, match="rank 1 has the data "):
            measure([str(tiny_run)], PLAIN, replace(encoder, ranks=ranks, corpus=corpora[ranks.rank]))

    on_threads(2, refused)


def test_python_measures_on_ranks_too(encoder, tiny_run):
    expected = evaluate(tiny_run, encoder.whole, device="cpu", features=None, workers=0)
    for found in on_threads(
        2, lambda ranks: evaluate(tiny_run, encoder.whole, device="cpu", features=None, workers=0, ranks=ranks)
    ):
        assert found.to_json() == expected.to_json()


def test_an_interrupted_evaluation_continues_on_the_same_ranks(encoder, tiny_run, tmp_path, monkeypatch):
    expected = measure([str(tiny_run)], PLAIN, encoder).json
    options = replace(PLAIN, resume=tmp_path / "found.json")
    stopped = threading.Event()
    stopped.set()
    with monkeypatch.context() as patch:
        patch.setattr(resumable, "interrupt_event", lambda: nullcontext(stopped))
        with pytest.raises((KeyboardInterrupt, RankError)):
            on_ranks(2, [str(tiny_run)], options, encoder)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"found.json.partial-{rank}-of-2" for rank in (0, 1)]
    assert on_ranks(2, [str(tiny_run)], options, encoder) == [expected] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_two_processes_print_what_one_prints(scenes, tiny_run, tmp_path):
    words = ("-m", "diptych", "evaluate", tiny_run, scenes, "--json", "--no-starter", "--device", "cpu")
    alone = start(tmp_path, *words)
    out, errors = alone.communicate(timeout=120)
    assert alone.returncode == 0, errors
    ended = finish(start_ranks(2, [*words, "--into", tmp_path / "found.json"]), seconds=120)
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert ended[0][1] == out
    assert ended[1][1:] == ("", "")
    assert json.loads(out) == json.loads((tmp_path / "found.json").read_text())
