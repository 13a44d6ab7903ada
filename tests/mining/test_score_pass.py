import numpy as np
import pytest
import torch

from diptych.errors import ScoreError
from diptych.evaluation.metrics.scores import matrix_score
from diptych.mining.exclusions import Exclusions
from diptych.mining.score_pass import ScorePass
from diptych.mining.top_scores import items_of


def test_the_lists_of_both_directions_are_filled_and_the_matrix_is_not_changed():
    matrix = torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 6.0, 9.0]])
    before = matrix.clone()
    groups = np.arange(3)
    score_pass = ScorePass(matrix_score(matrix), Exclusions(groups, groups, ["a", "b", "c"]), 1, 1, tiles=4)
    assert list(score_pass.remaining())[-1] == 3
    assert items_of(score_pass.texts_of_images.best()).ravel().tolist() == [2, 2, 1]
    assert items_of(score_pass.images_of_texts.best()).ravel().tolist() == [2, 2, 1]
    assert torch.equal(matrix, before)


def random_pass(block, images=13, texts=29):
    scores = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (images, texts)).astype(np.float32))
    image_groups, text_groups = np.arange(images), np.arange(texts) % images
    strings = [f"text {number % 20}" for number in range(texts)]
    return ScorePass(matrix_score(scores), Exclusions(image_groups, text_groups, strings), 5, 4, block)


@pytest.mark.parametrize("block", [1, 7, 60, 10_000])
def test_the_size_of_the_tiles_changes_nothing(block):
    plain, tiled = random_pass(10**6), random_pass(block)
    compared = [*plain.remaining(), *tiled.remaining()][1:]
    assert compared == sorted(compared)
    assert compared[-1] == 29
    assert tiled.done == len(tiled.rows) * len(tiled.columns)
    np.testing.assert_array_equal(tiled.texts_of_images.best(), plain.texts_of_images.best())
    np.testing.assert_array_equal(tiled.images_of_texts.best(), plain.images_of_texts.best())


def test_it_can_stop_after_any_tile_and_continue():
    whole, stopped = random_pass(40), random_pass(40)
    list(whole.remaining())
    for _ in range(len(whole.rows) * len(whole.columns)):
        remaining = stopped.remaining()
        next(remaining)
        remaining.close()
    assert list(stopped.remaining()) == []
    np.testing.assert_array_equal(stopped.texts_of_images.best(), whole.texts_of_images.best())


def test_a_score_that_is_not_a_number_is_named():
    scores = torch.zeros(9, 9)
    scores[7, 5] = torch.nan
    groups = np.arange(9)
    score_pass = ScorePass(matrix_score(scores), Exclusions(groups, groups, list("abcdefghi")), 2, 2, tiles=12)
    with pytest.raises(ScoreError, match="image 7 and text 5: their score is not a number"):
        list(score_pass.remaining())
