import pytest
import torch
from torch.nn.functional import cosine_similarity

from diptych.errors import ScoreError
from diptych.objectives.similarity import ComparedPairs

IMAGES, TEXTS = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)


def each_with_each(function, rows, columns):
    return torch.stack([torch.stack([function(row, column) for column in columns]) for row in rows])


def cosine(one, other):
    return cosine_similarity(one, other, dim=0)


def distance(images, texts):
    return -torch.cdist(images, texts)


@pytest.mark.parametrize(
    ("similarity", "slow"),
    [("cosine", cosine), ("dot", torch.dot), (distance, lambda one, other: -(one - other).norm())],
)
def test_scores_and_scores_within(similarity, slow):
    pairs = ComparedPairs(IMAGES, TEXTS, similarity)
    pairs.check()
    torch.testing.assert_close(pairs.scores(), each_with_each(slow, IMAGES, TEXTS))
    within = pairs.within()
    torch.testing.assert_close(within.images, each_with_each(slow, IMAGES, IMAGES))
    torch.testing.assert_close(within.texts, each_with_each(slow, TEXTS, TEXTS))


@pytest.mark.parametrize(
    ("images", "texts", "similarity", "message"),
    [
        (IMAGES, TEXTS[:3], "dot", r"images of shape \(4, 3\) and texts of shape \(3, 3\); pass one row per pair"),
        (IMAGES, TEXTS[:, :2], "cosine", r"images of shape \(4, 3\) and texts of shape \(4, 2\); 'cosine' needs"),
        (IMAGES[:, None], TEXTS[:, None], "dot", "images of shape .* 'dot' needs"),
        (IMAGES, TEXTS, "cosin", "similarity = 'cosin'; use 'cosine', 'dot', or a function"),
        (IMAGES, TEXTS.long(), "cosine", "texts of torch.int64"),
        (IMAGES.tolist(), TEXTS, "cosine", "images must be a torch tensor, not list"),
        (IMAGES, TEXTS.to("meta"), "cosine", "texts on meta, the rest of the batch on cpu"),
    ],
)
def test_what_cannot_be_compared(images, texts, similarity, message):
    with pytest.raises(ScoreError, match=f"^{message}"):
        ComparedPairs(images, texts, similarity).check()


def test_a_function_must_return_scores():
    for wrong, message in (
        (lambda images, texts: (images * texts).sum(1), r"similarity= returned \(4,\) for 4 pairs; return"),
        (lambda images, texts: None, "the result of similarity= must be a torch tensor, not NoneType"),
        (lambda images, texts: images @ texts.t() > 0, "the result of similarity= of torch.bool"),
    ):
        with pytest.raises(ScoreError, match=f"^{message}"):
            ComparedPairs(IMAGES, TEXTS, wrong).scores()


def test_a_function_may_compare_sets():
    sets = torch.randn(4, 5, 3), torch.randn(4, 2, 3)
    pairs = ComparedPairs(*sets, lambda images, texts: torch.einsum("ird,tsd->it", images, texts))
    pairs.check()
    assert pairs.scores().shape == (4, 4)


@pytest.mark.parametrize("similarity", ["cosine", "dot", distance])
def test_sides_of_different_precision(similarity):
    wanted = ComparedPairs(IMAGES.float().double(), TEXTS, similarity)
    for pairs in (ComparedPairs(IMAGES.float(), TEXTS, similarity), ComparedPairs(TEXTS, IMAGES.float(), similarity)):
        pairs.check()
        assert pairs.scores().dtype == torch.float64
        torch.testing.assert_close(
            pairs.scores() if pairs.texts is TEXTS else pairs.scores().t(), wanted.scores(), atol=1e-12, rtol=1e-12
        )
