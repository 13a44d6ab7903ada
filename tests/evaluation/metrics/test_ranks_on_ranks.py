"""Ranks and average precisions of encodings that are spread over ranks are those of one process."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.corpus import Integers
from diptych.errors import RankError, ScoreError
from diptych.evaluation.metrics.average_precision import ranks_with_precision
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import embedding_score, mean_score
from diptych.models.spread_rows import SpreadRows
from support.ranks import on_threads


def product(images, texts):
    return images @ texts.t()


def of_sets(images, texts):
    """The best region for each word, as SCAN compares sets, whose empty places are zeros."""
    return torch.einsum("ird,twd->itrw", images, texts).amax(2).sum(2)


def corpus(seed: int, groups: int) -> tuple[Integers, Integers]:
    """One to three images and texts per group, in any order."""
    random = np.random.default_rng(seed)
    images, texts = (random.permutation(np.repeat(np.arange(groups), random.integers(1, 4, groups))) for _ in range(2))
    return images, texts


def encodings(seed: int, count: int, places: int | None = None) -> torch.Tensor:
    """Vectors of few values, so that many scores are equal, or sets of them with empty places."""
    random = np.random.default_rng(seed)
    shape = (count, 3) if places is None else (count, places, 3)
    rows = random.integers(-1, 2, shape).astype(np.float32)
    if places is not None:
        rows[np.arange(places) >= random.integers(1, places + 1, count)[:, None]] = 0
        rows[0] = 1  # no place is empty in all of them
    return torch.from_numpy(rows)


def share(rows: torch.Tensor, processes) -> torch.Tensor:
    own = rows[processes.share(len(rows))]
    return own if rows.dim() == 2 else own[:, : int(own.any(2).any(0).nonzero().max() + 1) if own.any() else 1]


def assert_equal(found, expected):
    for name in ("images", "texts", "image_groups", "text_rows", "image_precisions", "text_precisions"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    groups=st.integers(1, 12),
    count=st.integers(2, 4),
    block=st.integers(1, 60),
    rank=st.sampled_from([ranks, ranks_with_precision]),
    sets=st.booleans(),
)
def test_any_number_of_ranks_finds_the_ranks_of_one_process(seed, groups, count, block, rank, sets):
    image_groups, text_groups = corpus(seed, groups)
    images = encodings(seed, len(image_groups), 4 if sets else None)
    texts = encodings(seed + 1, len(text_groups), 5 if sets else None)
    score = of_sets if sets else product
    expected = rank(embedding_score(score, images, texts), image_groups, text_groups, block=block)

    def found(processes):
        spread = [SpreadRows(share(rows, processes), processes) for rows in (images, texts)]
        return rank(embedding_score(score, *spread), image_groups, text_groups, block=block)

    for each in on_threads(count, found):
        assert_equal(each, expected)


def test_folds_and_ensembles_are_measured_one_after_the_other():
    image_groups, text_groups = corpus(5, 40)
    members = [(encodings(seed, len(image_groups)), encodings(seed + 1, len(text_groups))) for seed in (1, 3)]
    folds = [
        tuple(np.flatnonzero(np.isin(groups, names)) for groups in (image_groups, text_groups))
        for names in np.array_split(np.random.default_rng(0).permutation(40), 3)
    ]

    def measured(score):
        return [
            ranks(score, image_groups, text_groups, image_rows=images, text_rows=texts, block=30)
            for images, texts in folds
        ]

    expected = measured(mean_score([embedding_score(product, *each) for each in members]))

    def found(processes):
        spread = [[SpreadRows(share(rows, processes), processes) for rows in each] for each in members]
        return measured(mean_score([embedding_score(product, *each) for each in spread]))

    for each in on_threads(3, found):
        for one, other in zip(each, expected, strict=True):
            assert_equal(one, other)


def test_a_score_that_is_not_a_number_stops_all_ranks():
    image_groups, text_groups = corpus(6, 20)
    images, texts = encodings(0, len(image_groups)), encodings(1, len(text_groups))
    texts[-1, 0] = torch.nan

    def found(processes):
        spread = [SpreadRows(share(rows, processes), processes) for rows in (images, texts)]
        with pytest.raises((RankError, ScoreError), match=f"text {len(texts) - 1}: their score is not a number"):
            ranks(embedding_score(product, *spread), image_groups, text_groups, block=30)

    on_threads(2, found)


def test_no_rank_holds_more_than_its_share_and_a_tile():
    """The tiles are those of one process, and every rank computes some."""
    image_groups, text_groups = np.arange(60), np.repeat(np.arange(60), 5)
    images, texts = encodings(0, 60), encodings(1, 300)
    alone, shapes = [], [[], []]

    def noting(into):
        def score(some_images, some_texts):
            into.append((some_images.shape[0], some_texts.shape[0]))
            return product(some_images, some_texts)

        return score

    ranks(embedding_score(noting(alone), images, texts), image_groups, text_groups, block=500)

    def found(processes):
        spread = [SpreadRows(share(rows, processes), processes) for rows in (images, texts)]
        ranks(embedding_score(noting(shapes[processes.rank]), *spread), image_groups, text_groups, block=500)
        return [len(rows._placed) + len(rows._shown) for rows in spread]

    for held_images, held_texts in on_threads(2, found):
        assert held_images <= 30 + 10
        assert held_texts <= 150
    assert sorted(shapes[0] + shapes[1]) == sorted(alone)
    assert len(shapes[0]) == len(shapes[1])
