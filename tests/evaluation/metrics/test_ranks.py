from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import embedding_score, matrix_score, mean_score

ALL = [-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf]
TIES = st.sampled_from(ALL)


@st.composite
def ties(draw: st.DrawFn, *shape: int) -> np.ndarray:
    """All of these values, two or three, or a single one all over a matrix; drawing each entry would be slow."""
    values = np.array(draw(st.lists(TIES, min_size=1, max_size=3) | st.just(ALL)), np.float32)
    return np.random.default_rng(draw(st.integers(0, 2**32))).choice(values, shape)


@dataclass
class Case:
    scores: np.ndarray
    image_groups: np.ndarray
    text_groups: np.ndarray
    block: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Groups of any size and name, their images and texts in any order, many ties, blocks down to one score."""
    names = draw(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5, unique=True))
    images = [name for name in names for _ in range(draw(st.integers(1, 3)))]
    texts = [name for name in names for _ in range(draw(st.integers(1, 5)))]
    if draw(st.booleans()):
        images, texts = draw(st.permutations(images)), draw(st.permutations(texts))
    scores = draw(ties(len(images), len(texts)))
    return Case(scores, np.array(images), np.array(texts), draw(st.integers(1, 40)))


def sorted_ranks(scores: np.ndarray, query_groups: np.ndarray, answer_groups: np.ndarray) -> list[int]:
    """Sort all answers of each query, best first and negatives first among equals, and find a positive."""
    found = []
    for query, group in enumerate(query_groups):
        paired = zip(scores[query].astype(float), answer_groups, strict=True)
        keys = [(-score, other == group) for score, other in paired]
        found.append(1 + [positive for _, positive in sorted(keys)].index(True))
    return found


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def product(images: Tensor, texts: Tensor) -> Tensor:
    return images @ texts.T


@given(cases())
def test_ranks_equal_a_full_sort(case: Case):
    found = ranks(matrix_score(torch.from_numpy(case.scores)), case.image_groups, case.text_groups, block=case.block)

    assert found.images.tolist() == sorted_ranks(case.scores, case.image_groups, case.text_groups)
    assert found.texts.tolist() == sorted_ranks(case.scores.T, case.text_groups, case.image_groups)
    assert found.images.dtype == found.texts.dtype == np.int64
    assert found.image_groups.tolist() == case.image_groups.tolist()


@settings(max_examples=40)
@given(cases(), st.randoms(use_true_random=False))
def test_selected_rows_are_ranked_like_a_corpus_of_their_own(case: Case, random):
    kept = random.sample(sorted(set(case.image_groups)), k=1 + len(set(case.image_groups)) // 2)
    images = np.flatnonzero(np.isin(case.image_groups, kept))
    texts = np.flatnonzero(np.isin(case.text_groups, kept))

    part = ranks(
        matrix_score(torch.from_numpy(case.scores)),
        case.image_groups,
        case.text_groups,
        image_rows=images,
        text_rows=texts,
        block=case.block,
    )
    scores = case.scores[np.ix_(images, texts)]
    assert part.images.tolist() == sorted_ranks(scores, case.image_groups[images], case.text_groups[texts])
    assert part.texts.tolist() == sorted_ranks(scores.T, case.text_groups[texts], case.image_groups[images])
    assert part.image_rows.tolist() == images.tolist()


def test_by_hand():
    scores = torch.tensor([[0.9, 0.2, 0.9, 0.1], [0.3, 0.8, 0.4, 0.4]])
    found = ranks(matrix_score(scores), np.array([7, 3]), np.array([7, 7, 3, 3]))
    # image 0: its best text 0.9 is met by text 2; image 1: text 1 (0.8) beats its best, 0.4
    assert found.images.tolist() == [2, 2]
    # text 1 (0.2 with its image) and text 2 (0.4) lose to the other image; texts 0 and 3 win
    assert found.texts.tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("block", [30, 500, 10**6])
def test_ranks_follow_their_images_and_texts_when_these_are_reordered(block: int):
    random = np.random.default_rng(0)
    image_groups, text_groups = np.arange(40) // 2, random.permutation(np.arange(200) % 20)
    images, texts = normal(40, 8), normal(200, 8, seed=1)
    image_order, text_order = random.permutation(40), random.permutation(200)

    plain = ranks(embedding_score(product, images, texts), image_groups, text_groups, block=block)
    reordered = ranks(
        embedding_score(product, images[image_order], texts[text_order]),
        image_groups[image_order],
        text_groups[text_order],
        block=block,
    )
    assert reordered.images.tolist() == plain.images[image_order].tolist()
    assert reordered.texts.tolist() == plain.texts[text_order].tolist()
    assert len(set(plain.images)) > 3, "equal ranks would prove nothing"


@pytest.mark.parametrize(("groups", "texts_each"), [(2, 1), (5, 5), (3, 40), (77, 3), (300, 5)])
@pytest.mark.parametrize("size", [64, 300, 1024])
def test_a_collapsed_model_ranks_last(groups: int, texts_each: int, size: int):
    images = torch.nn.functional.normalize(normal(1, size)).repeat(groups, 1)
    texts = torch.nn.functional.normalize(normal(1, size, seed=1)).repeat(groups * texts_each, 1)
    image_groups, text_groups = np.arange(groups), np.repeat(np.arange(groups), texts_each)
    for block in (7, 1000, 10**6):
        if groups * groups * texts_each / block < 2000:
            found = ranks(embedding_score(product, images, texts), image_groups, text_groups, block=block)
            assert set(found.images) == {(groups - 1) * texts_each + 1}
            assert set(found.texts) == {groups}


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_every_floating_point_type_is_ranked_without_rounding(kind: torch.dtype):
    scores = normal(12, 36).to(kind)
    found = ranks(matrix_score(scores), np.arange(12), np.arange(36) // 3, block=50)
    assert found.images.tolist() == sorted_ranks(scores.double().numpy(), np.arange(12), np.arange(36) // 3)


def test_embeddings_that_carry_gradients_are_ranked_without_them():
    carried = []

    def score(images: Tensor, texts: Tensor) -> Tensor:
        carried.append(product(images, texts).requires_grad)
        return product(images, texts)

    images = normal(4, 3).requires_grad_()
    ranks(embedding_score(score, images, images), np.arange(4), np.arange(4))
    assert carried == [False]


def test_an_ensemble_ranks_by_the_mean():
    first, second = normal(10, 30), normal(10, 30, seed=1)
    groups = np.arange(10), np.arange(30) % 10
    both = ranks(mean_score([matrix_score(first), matrix_score(second)]), *groups, block=20)
    mean = ((first + second) / 2).numpy()
    assert both.images.tolist() == sorted_ranks(mean, *groups)
    assert both.images.tolist() != sorted_ranks(first.numpy(), *groups)
