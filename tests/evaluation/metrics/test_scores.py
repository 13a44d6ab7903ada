from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from diptych.errors import ScoreError
from diptych.evaluation.metrics.scores import MIN_PRODUCT_SIZE, embedding_score, matrix_score, mean_score


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


INDICES = [slice(0, 5), slice(3, 4), slice(0, 30), torch.tensor([4, 0, 4]), torch.arange(29, -1, -1)]


@pytest.mark.parametrize("columns", INDICES, ids=str)
@pytest.mark.parametrize("rows", INDICES, ids=str)
def test_a_tile_is_a_part_of_the_whole(rows, columns):
    images, texts = normal(30, 6), normal(30, 6, seed=1)
    whole = images @ texts.T
    for score in (embedding_score(lambda some, others: some @ others.T, images, texts), matrix_score(whole)):
        assert (score.images, score.texts) == (30, 30)
        torch.testing.assert_close(score.against(columns)(rows), whole[rows][:, columns])


def test_products_are_never_narrower_than_the_minimum():
    shapes = []

    def score(images: Tensor, texts: Tensor) -> Tensor:
        shapes.append((len(images), len(texts)))
        return images @ texts.T

    tile = embedding_score(score, normal(20, 3), normal(20, 3)).against(slice(2, 3))
    assert tile(slice(0, 1)).shape == (1, 1)
    assert tile(torch.tensor([19, 3])).shape == (2, 1)
    assert tile(slice(0, 12)).shape == (12, 1)
    assert shapes == [(MIN_PRODUCT_SIZE, MIN_PRODUCT_SIZE)] * 2 + [(12, MIN_PRODUCT_SIZE)]


@pytest.mark.parametrize("size", [3, 64, 300])
def test_equal_embeddings_tie_within_every_tile(size):
    images, texts = normal(1, size).repeat(40, 1), normal(1, size, seed=1).repeat(50, 1)
    score = embedding_score(lambda some, others: some @ others.T, images, texts)
    parts = [(slice(0, 40), slice(0, 50)), (slice(0, 1), slice(0, 50)), (slice(3, 9), slice(7, 8)), (slice(2, 3),) * 2]
    for rows, columns in parts:
        assert len(score.against(columns)(rows).unique()) == 1


def test_texts_are_gathered_once_per_tile_column():
    class Counted:
        def __init__(self, rows: Tensor) -> None:
            self.rows, self.gathered = rows, 0

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, index):
            self.gathered += 1
            return self.rows[index]

    texts = Counted(normal(20, 3))
    tile = embedding_score(lambda some, others: some @ others.T, normal(20, 3), texts).against(slice(0, 10))
    for start in (0, 10):
        tile(slice(start, start + 10))
    assert texts.gathered == 1


def test_an_ensemble_is_the_mean():
    matrices = [normal(6, 9, seed=seed) for seed in range(3)]
    tile = mean_score([matrix_score(matrix) for matrix in matrices]).against(slice(2, 7))(slice(1, 4))
    np.testing.assert_allclose(tile, np.mean([matrix[1:4, 2:7].numpy() for matrix in matrices], axis=0), atol=1e-6)


def test_an_ensemble_of_different_corpora_is_refused():
    with pytest.raises(ScoreError, match="2 x 3, 2 x 4"):
        mean_score([matrix_score(normal(2, 4)), matrix_score(normal(2, 3))])
    with pytest.raises(ScoreError, match="none"):
        mean_score([])
