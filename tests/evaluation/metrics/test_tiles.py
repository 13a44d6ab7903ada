"""The pass over tiles, observed through the ranks that are counted by it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.errors import ScoreError
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import Index, Score, embedding_score, matrix_score
from diptych.evaluation.metrics.tiles import GroupedItems, TilePass, group_items


@st.composite
def cases(draw: st.DrawFn):
    """Random scores, groups of any size with their images and texts in any order, and a block."""
    groups = range(draw(st.integers(1, 5)))
    images = draw(st.permutations([group for group in groups for _ in range(draw(st.integers(1, 3)))]))
    texts = draw(st.permutations([group for group in groups for _ in range(draw(st.integers(1, 5)))]))
    scores = normal(len(images), len(texts), seed=draw(st.integers(0, 99)))
    return scores, np.array(images), np.array(texts), draw(st.integers(1, 40))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def product(images: Tensor, texts: Tensor) -> Tensor:
    return images @ texts.T


class Spy:
    """Wraps a score and records what is requested from it."""

    def __init__(self, score: Score) -> None:
        self.tiles: list[tuple[int, int]] = []
        self.indices: list[Index] = []
        self.prepared = 0
        self.score = Score(score.images, score.texts, lambda columns: self.against(score, columns))

    def against(self, score: Score, columns: Index):
        part = score.against(columns)
        self.prepared += 1
        self.indices.append(columns)

        def tile(rows: Index) -> Tensor:
            scores = part(rows)
            self.tiles.append(tuple(scores.shape))
            self.indices.append(rows)
            return scores

        return tile


@settings(max_examples=30)
@given(cases())
def test_every_pair_is_scored_once_in_tiles_of_at_most_a_block_and_not_changed(case):
    matrix, image_groups, text_groups, block = case
    before = matrix.clone()
    spy = Spy(matrix_score(matrix))

    ranks(spy.score, image_groups, text_groups, block=block)

    assert max(images * texts for images, texts in spy.tiles) <= block
    assert sum(images * texts for images, texts in spy.tiles) == matrix.numel()
    assert torch.equal(matrix, before)


class Collector(TilePass):
    """Records which pairs were collected as positives and negatives, in order."""

    def __init__(self, *items) -> None:
        super().__init__(*items)
        self.positives, self.negatives = list[tuple[int, int]](), list[tuple[int, int]]()
        self.had_all_positives = True

    def pairs(self, rows, columns, mask):
        image, text = np.nonzero(mask)
        return list(zip(self.images.rows[rows][image].tolist(), self.texts.rows[columns][text].tolist(), strict=True))

    def collect_positives(self, rows, columns, tile, positives):
        self.positives += self.pairs(rows, columns, positives.numpy())

    def collect_negatives(self, rows, columns, tile, positives):
        mask = np.ones(tile.shape, bool) if positives is None else ~positives.numpy()
        found = self.pairs(rows, columns, mask)
        images, texts = {image for image, _ in found}, {text for _, text in found}
        for side, wanted in ((0, images), (1, texts)):
            self.had_all_positives &= wanted <= {pair[side] for pair in self.positives}
        self.negatives += found


@settings(max_examples=40)
@given(cases())
def test_each_pair_is_collected_once_and_positives_before_their_negatives(case):
    matrix, image_groups, text_groups, block = case
    rows = np.arange(len(image_groups)), np.arange(len(text_groups))
    score = matrix_score(matrix)
    collector = Collector(score, *group_items(score, image_groups, text_groups, *rows), block)
    collector.run()
    assert collector.done == collector.tiles
    same = image_groups[:, None] == text_groups
    assert sorted(collector.positives) == [tuple(pair) for pair in np.argwhere(same).tolist()]
    assert sorted(collector.negatives) == [tuple(pair) for pair in np.argwhere(~same).tolist()]
    assert collector.had_all_positives


def test_items_in_order_are_indexed_by_slices():
    items = GroupedItems(np.array([4, 5, 6, 9]), np.array([0, 0, 1, 1]))
    assert items.index(slice(0, 3)) == slice(4, 7)
    assert items.index(slice(2, 4)).tolist() == [6, 9]
    assert len(items) == 4


def test_items_are_put_in_group_order_and_keep_the_order_within_a_group():
    items = GroupedItems(np.array([10, 11, 12, 13]), np.array([1, 0, 1, 0]))
    assert items.rows.tolist() == [11, 13, 10, 12]
    assert items.numbers.tolist() == [0, 0, 1, 1]
    assert items.order.tolist() == [1, 3, 0, 2]


def test_texts_in_order_are_prepared_at_most_twice_and_never_gathered():
    # the order is that of the images, whatever the names of their groups
    image_groups = np.random.default_rng(0).permutation(200)
    text_groups = np.repeat(image_groups, 5)
    spy = Spy(embedding_score(product, normal(200, 16), normal(1000, 16, seed=1)))

    ranks(spy.score, image_groups, text_groups, block=40 * 200)

    assert len(spy.tiles) == 25
    assert spy.prepared <= 2 * 5
    assert all(isinstance(index, slice) for index in spy.indices)


def test_a_single_tile_is_scored_once():
    spy = Spy(matrix_score(normal(6, 6)))
    ranks(spy.score, np.arange(6), np.arange(6))
    assert spy.tiles == [(6, 6)]
    assert spy.prepared == 1


@pytest.mark.parametrize("block", [1, 9, 1000])
@pytest.mark.parametrize("other", [0.0, np.inf, -np.inf])
def test_a_score_that_is_not_a_number_names_the_pair(block: int, other: float):
    scores = torch.full((5, 10), other)
    scores[3, 8] = torch.nan
    groups = np.arange(5), np.arange(10) % 5
    with pytest.raises(ScoreError, match=r"^image 3 and text 8: .*not a number"):
        ranks(matrix_score(scores), *groups, block=block)
    # the row in the corpus, not the position among the selected rows
    images, texts = np.array([1, 3]), np.array([1, 3, 6, 8])
    with pytest.raises(ScoreError, match=r"^image 3 and text 8: "):
        ranks(matrix_score(scores), *groups, image_rows=images, text_rows=texts, block=block)


def test_infinities_that_cancel_are_not_taken_for_nan():
    scores = torch.tensor([[torch.inf, -torch.inf], [-torch.inf, torch.inf]])
    assert ranks(matrix_score(scores), np.arange(2), np.arange(2)).images.tolist() == [1, 1]


def test_a_query_without_a_positive_is_named():
    score = matrix_score(normal(3, 4))
    with pytest.raises(ScoreError, match=r"^image 1 \(and 1 more\): no text of its group 8"):
        ranks(score, np.array([7, 8, 9]), np.array([7, 7, 7, 7]))
    with pytest.raises(ScoreError, match=r"^text 3: no image of its group 6"):
        ranks(score, np.array([7, 8, 9]), np.array([7, 8, 9, 6]))
    with pytest.raises(ScoreError, match=r"^image 2: "):
        ranks(score, np.arange(3), np.array([0, 1, 2, 2]), image_rows=np.array([1, 2]), text_rows=np.array([1]))


def test_nothing_to_rank_is_an_error():
    with pytest.raises(ScoreError, match="no image to rank"):
        ranks(matrix_score(normal(0, 0)), np.arange(0), np.arange(0))


def test_scores_and_groups_of_different_corpora_are_refused():
    with pytest.raises(ScoreError, match="2 images and 6 texts for groups of 2 images and 5 texts"):
        ranks(matrix_score(normal(2, 6)), np.arange(2), np.arange(5) % 2)


@pytest.mark.parametrize("wrong", [torch.zeros(6), torch.zeros(6, 2), torch.zeros(2, 6, dtype=torch.int64)])
def test_a_score_of_the_wrong_shape_or_kind_is_refused(wrong: Tensor):
    score = Score(2, 6, lambda columns: lambda rows: wrong)
    with pytest.raises(ScoreError, match="for 2 images and 6 texts; it must return"):
        ranks(score, np.arange(2), np.arange(6) // 3)
