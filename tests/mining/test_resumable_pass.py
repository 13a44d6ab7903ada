"""A pass that is interrupted, resumed, or started again because its saved state is of no use."""

import numpy as np
import pytest
import torch

from diptych.evaluation.metrics.scores import matrix_score
from diptych.mining import resumable_pass
from diptych.mining.exclusions import Exclusions
from diptych.mining.resumable_pass import ResumablePass
from diptych.mining.score_pass import ScorePass

IDENTITY = {"weights": "w"}


def new_pass(block=40):
    scores = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (13, 29)).astype(np.float32))
    exclusions = Exclusions(np.arange(13), np.arange(29) % 13, [f"text {number}" for number in range(29)])
    return ScorePass(matrix_score(scores), exclusions, 5, 4, block)


def run(file, score_pass, identity=IDENTITY, stop_after=None):
    """The number of tiles processed; optionally interrupted."""
    tiles = []

    def report(texts):
        tiles.append(texts)
        if len(tiles) == stop_after:
            raise KeyboardInterrupt

    try:
        ResumablePass(file, identity).run(score_pass, report)
    except KeyboardInterrupt:
        assert len(tiles) == stop_after
    return len(tiles)


@pytest.fixture
def whole(tmp_path):
    score_pass = new_pass()
    assert run(tmp_path / "whole", score_pass) == score_pass.done > 5
    return score_pass


def assert_same(one, other):
    np.testing.assert_array_equal(one.texts_of_images.best(), other.texts_of_images.best())
    np.testing.assert_array_equal(one.images_of_texts.best(), other.images_of_texts.best())


def test_an_interrupted_pass_is_resumed_with_the_same_result(tmp_path, whole):
    file = tmp_path / "lists"
    assert run(file, new_pass(), stop_after=3) == 3
    assert (tmp_path / "lists.partial").is_file()
    resumed = new_pass()
    assert run(file, resumed) == whole.done - 3
    assert_same(resumed, whole)
    ResumablePass(file, IDENTITY).remove()
    assert not (tmp_path / "lists.partial").exists()
    ResumablePass(file, IDENTITY).remove()  # nothing to remove is no error


@pytest.mark.parametrize(("identity", "block"), [({"weights": "other"}, 40), (IDENTITY, 90)], ids=["identity", "tiles"])
def test_a_state_of_another_pass_is_ignored(tmp_path, whole, identity, block):
    file = tmp_path / "lists"
    run(file, new_pass(), stop_after=3)
    again = new_pass(block)
    assert run(file, again, identity) == len(again.rows) * len(again.columns)
    assert_same(again, whole)


def test_a_damaged_state_is_ignored(tmp_path, whole):
    file = tmp_path / "lists"
    run(file, new_pass(), stop_after=3)
    partial = tmp_path / "lists.partial"
    partial.write_bytes(partial.read_bytes()[:-10])
    assert run(file, new_pass()) == whole.done


def test_the_state_is_saved_from_time_to_time(tmp_path, monkeypatch):
    saves = []
    monkeypatch.setattr(resumable_pass, "save_tensors", lambda path, tensors, header: saves.append(header["done"]))
    run(tmp_path / "lists", new_pass())
    assert saves == []
    monkeypatch.setattr(resumable_pass, "SECONDS_BETWEEN_SAVES", 0.0)
    tiles = run(tmp_path / "lists", new_pass())
    assert saves == list(range(1, tiles + 1))
