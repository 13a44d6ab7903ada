"""The pass over tiles of a matrix that belongs to somebody else."""

import numpy as np
import torch

from diptych.evaluation.metrics.scores import matrix_score
from diptych.mining.exclusions import Exclusions
from diptych.mining.score_pass import ScorePass
from diptych.mining.top_scores import items_of


def test_a_matrix_is_only_read():
    matrix = torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 6.0, 9.0]])
    before = matrix.clone()
    groups = np.arange(3)
    tiles = ScorePass(matrix_score(matrix), Exclusions(groups, groups, ["a", "b", "c"]), 1, 1, block=4)
    assert list(tiles.left())[-1] == 3
    assert items_of(tiles.texts_of_images.best()).ravel().tolist() == [2, 2, 1]
    assert items_of(tiles.images_of_texts.best()).ravel().tolist() == [2, 2, 1]
    assert torch.equal(matrix, before)
