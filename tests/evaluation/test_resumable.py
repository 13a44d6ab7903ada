"""A pass that is interrupted, resumed, or started again because its saved state is of no use."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import RankError
from diptych.evaluation import resumable
from diptych.evaluation.metrics.pair_ranks import PairCounter
from diptych.evaluation.metrics.ranks import RankCounter
from diptych.evaluation.metrics.scores import embedding_score, matrix_score
from diptych.evaluation.metrics.tiles import group_items
from diptych.evaluation.protocols.retrieval import evaluate_score
from diptych.evaluation.resumable import ResumablePasses
from diptych.mining.exclusions import Exclusions
from diptych.mining.score_pass import ScorePass
from diptych.models.spread_rows import SpreadRows
from support.ranks import on_threads

IDENTITY = {"weights": "w"}
IMAGES, TEXTS = np.arange(13), np.arange(29) % 13
SCORES = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (13, 29)).astype(np.float32))


def mining(block=40):
    exclusions = Exclusions(IMAGES, TEXTS, [f"text {number}" for number in range(29)])
    return ScorePass(matrix_score(SCORES), exclusions, 5, 4, block)


def counting(counter, block=40):
    score = matrix_score(SCORES)
    return counter(score, *group_items(score, IMAGES, TEXTS, np.arange(13), np.arange(29)), block)


PASSES = {"mining": mining, "ranks": partial(counting, RankCounter), "pairs": partial(counting, PairCounter)}


def run(file, scores_pass, identity=IDENTITY, stop_after=None):
    """The number of tiles processed; optionally interrupted."""
    tiles = []

    def report(reached):
        tiles.append(reached)
        if len(tiles) == stop_after:
            raise KeyboardInterrupt

    try:
        ResumablePasses(file, identity).run(scores_pass, report)
    except KeyboardInterrupt:
        assert len(tiles) == stop_after
    return len(tiles)


def assert_same(one, other):
    assert one.done == other.done
    for name, rows in one.state().items():
        assert torch.equal(rows, other.state()[name])


@pytest.fixture(params=PASSES)
def new_pass(request):
    return PASSES[request.param]


@pytest.fixture
def whole(tmp_path, new_pass):
    done = new_pass()
    assert run(tmp_path / "whole", done) == done.done > 5
    return done


def test_an_interrupted_pass_is_resumed_with_the_same_result(tmp_path, new_pass, whole):
    file = tmp_path / "lists"
    for stop_after in (3, 1):
        assert run(file, new_pass(), stop_after=stop_after) == stop_after
    assert (tmp_path / "lists.partial").is_file()
    resumed = new_pass()
    assert run(file, resumed) == whole.done - 4
    assert_same(resumed, whole)
    ResumablePasses(file, IDENTITY).remove()
    assert not (tmp_path / "lists.partial").exists()
    ResumablePasses(file, IDENTITY).remove()  # nothing to remove is no error


@pytest.mark.parametrize(("identity", "block"), [({"weights": "other"}, 40), (IDENTITY, 90)], ids=["identity", "tiles"])
def test_a_state_of_another_pass_is_ignored(tmp_path, new_pass, identity, block):
    file = tmp_path / "lists"
    run(file, new_pass(), stop_after=3)
    again, expected = new_pass(block), new_pass(block)
    assert run(file, again, identity) == run(tmp_path / "whole", expected)
    assert_same(again, expected)


def test_a_damaged_state_is_ignored(tmp_path, new_pass, whole):
    file = tmp_path / "lists"
    run(file, new_pass(), stop_after=3)
    partial_file = tmp_path / "lists.partial"
    partial_file.write_bytes(partial_file.read_bytes()[:-10])
    assert run(file, new_pass()) == whole.done


def test_the_state_is_saved_from_time_to_time(tmp_path, new_pass, monkeypatch):
    saves = []

    def note(path, tensors, header):
        saves.append(header["passes"][-1]["done"])

    monkeypatch.setattr(resumable, "save_tensors", note)
    run(tmp_path / "lists", new_pass())
    assert saves == []
    monkeypatch.setattr(resumable, "SECONDS_BETWEEN_SAVES", 0.0)
    tiles = run(tmp_path / "lists", new_pass())
    assert saves == list(range(1, tiles + 1))


def test_without_a_file_nothing_is_written(tmp_path, monkeypatch, new_pass):
    monkeypatch.chdir(tmp_path)
    assert run(None, new_pass(), stop_after=2) == 2
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None, max_examples=20)
@given(stop=st.integers(1, 60), precision=st.booleans())
def test_folds_that_were_finished_are_not_measured_again(tmp_path_factory, stop, precision):
    """Whichever tile of whichever fold is the last one, the metrics are those of an evaluation in one go."""
    file, visited = tmp_path_factory.mktemp("evaluation") / "result.json", []
    random = np.random.default_rng(1)
    groups = np.arange(40), np.repeat(np.arange(40), 3)
    score = matrix_score(torch.from_numpy(random.integers(0, 30, (40, 120)).astype(np.float32)))

    def evaluate(last=None, **options):
        def progress(done, total):
            visited.append((done, total))
            if len(visited) == last:
                raise KeyboardInterrupt

        visited.clear()
        return evaluate_score(
            score, *groups, folds=3, block=60, draws=10, average_precision=precision, progress=progress, **options
        )

    expected, tiles = evaluate(), len(visited)
    assert visited[-1][0] == visited[-1][1] == tiles
    if stop < tiles:
        with pytest.raises(KeyboardInterrupt):
            evaluate(stop, passes=ResumablePasses(file, IDENTITY))
    resumed = evaluate(passes=ResumablePasses(file, IDENTITY))
    assert len(visited) == tiles - (stop if stop < tiles else 0)
    assert resumed.to_json() == expected.to_json()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), count=st.integers(2, 3), stopping=st.integers(0, 2), after=st.integers(1, 40))
def test_ranks_continue_wherever_each_of_them_was(tmp_path_factory, seed, count, stopping, after):
    """One rank is interrupted; the others notice a moment later, and each continues from its own state."""
    file, random = tmp_path_factory.mktemp("evaluation") / "result.json", np.random.default_rng(seed)
    images, texts = (torch.from_numpy(random.integers(-2, 3, (rows, 4)).astype(np.float32)) for rows in (24, 72))
    groups = np.arange(24), random.permutation(np.repeat(np.arange(24), 3))

    def evaluate(processes, last=None):
        visited = [(0, 0)]

        def progress(done, total):
            visited.append((done, total))
            if processes.rank == stopping % count and done == last:
                raise KeyboardInterrupt

        spread = [SpreadRows(rows[processes.share(len(rows))], processes) for rows in (images, texts)]
        score = embedding_score(lambda some, others: some @ others.T, *spread)
        passes = ResumablePasses(file, IDENTITY, processes)
        result = evaluate_score(score, *groups, block=90, draws=10, passes=passes, progress=progress)
        return result.to_json(), len(visited) - 1, visited[-1][1]

    expected = evaluate_score(embedding_score(lambda some, others: some @ others.T, images, texts), *groups, draws=10)
    try:
        on_threads(count, partial(evaluate, last=after))
    except (KeyboardInterrupt, RankError):
        assert list(file.parent.iterdir())
    for rank, (found, visited, tiles) in enumerate(on_threads(count, evaluate)):
        assert found == expected.to_json()
        assert rank != stopping % count or visited == max(0, tiles - after)
