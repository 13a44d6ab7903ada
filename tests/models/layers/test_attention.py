"""The blocks against loops over single pairs that form every attended vector, in double precision and in single."""

import math
from itertools import product

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from diptych.models.layers import attention
from diptych.models.layers.attention import Attention

NORMS = ["clipped_l2norm", "clipped_l1norm", "clipped", "l2norm", "l1norm", "softmax", "none"]
POOLS = ["lse", "lme", "mean", "max", "sum"]


def plain_norm(norm, row):
    """The scores of one context vector with all queries."""
    if norm == "softmax":
        return row.exp() / row.exp().sum()
    if norm.startswith("clipped"):
        row = torch.where(row > 0, row, row / 10)
    if norm.endswith("l2norm"):
        return row / row.pow(2).sum().sqrt()
    return row / row.abs().sum() if norm.endswith("l1norm") else row


def focused(focal, weights):
    if focal == "equal":
        over = torch.stack([len(weights) * one - weights.sum() for one in weights]).detach()
    else:
        over = torch.stack([sum(other.sqrt() * (one - other) for other in weights) for one in weights]).detach()
        over = over / weights.detach().pow(1.5).sum()
    assume((over.abs() > 1e-4).all() or (over.abs() < 1e-9).all())  # in between rounding decides
    kept = over > 1e-4
    weights = weights * kept if kept.any() else weights
    return weights / weights.sum()


def plain_pool(rule, cosines):
    if rule.pool == "lse":
        return (rule.lse * cosines).exp().sum().log() / rule.lse
    if rule.pool == "lme":
        return (rule.lse * cosines).exp().mean().log() / rule.lse
    return {"mean": torch.mean, "max": torch.max, "sum": torch.sum}[rule.pool](cosines)


def plain_score(rule, queries, context):
    """One image and one text, with the vectors that are there only."""
    raw = torch.stack([torch.stack([one @ query for query in queries]) for one in context])
    normed = torch.stack([plain_norm(rule.norm, row) for row in raw])  # (context, queries)
    cosines = []
    for number, query in enumerate(queries):
        weights = (rule.smooth * normed[:, number]).softmax(0)
        if rule.focal:
            weights = focused(rule.focal, weights)
        attended = sum(weight * one for weight, one in zip(weights, context, strict=True))
        cosines.append(query @ attended / (query.norm() * attended.norm()))
    return plain_pool(rule, torch.stack(cosines))


def plain_scores(rule, images, regions, texts, words, directions):
    scores = torch.zeros(len(images), len(texts), dtype=images.dtype)
    rows = []
    for i, j in product(range(len(images)), range(len(texts))):
        image, text = images[i][regions[i]], texts[j][: words[j]]
        rows.append(sum(plain_score(rule, *((text, image) if way == "t2i" else (image, text))) for way in directions))
    return torch.stack(rows).view_as(scores)


def unit_sets(there, size, seed):
    torch.manual_seed(seed)
    raw = torch.randn(*there.shape, size, dtype=torch.float64)
    return raw.requires_grad_(), there


def encoded(raw, there):
    return normalize(raw, dim=2) * there[:, :, None]


rows_of_regions = st.lists(st.lists(st.booleans(), min_size=4, max_size=4).filter(any), min_size=1, max_size=3)
numbers_of_words = st.lists(st.integers(1, 4), min_size=1, max_size=3)
rules = st.one_of(
    st.builds(
        Attention,
        norm=st.sampled_from(NORMS),
        smooth=st.sampled_from([4.0, 9.0, 50.0]),
        pool=st.sampled_from(POOLS),
        lse=st.sampled_from([5.0, 20.0]),
    ),
    st.builds(Attention, smooth=st.just(20.0), focal=st.sampled_from(["equal", "prob"]), pool=st.just("mean")),
)
ways = st.sampled_from([("t2i",), ("i2t",), ("t2i", "i2t")])


def inside(words, extra=0):
    return torch.arange(max(words) + extra) < torch.tensor(words)[:, None]


@settings(max_examples=25)
@given(rows_of_regions, numbers_of_words, rules, ways, st.integers(0, 99))
def test_values_and_gradients_equal_a_loop_over_pairs(regions, words, rule, directions, seed):
    regions = torch.tensor(regions)
    raw_images, there = unit_sets(regions, 12, seed)
    raw_texts, inside_text = unit_sets(inside(words, extra=1), 12, seed + 1)
    images, texts = encoded(raw_images, there), encoded(raw_texts, inside_text)
    expected = plain_scores(rule, images, regions, texts, words, directions)
    found = rule.score(images, texts, *directions)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)

    weight = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).view_as(expected)
    ours = torch.autograd.grad((found * weight).sum(), (raw_images, raw_texts), retain_graph=True)
    theirs = torch.autograd.grad((expected * weight).sum(), (raw_images, raw_texts))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=25)
@given(rows_of_regions, rules, ways, st.integers(0, 99))
def test_pairs_equal_the_diagonal_with_all_gradients(regions, rule, directions, seed):
    words = [1 + (seed + k) % 3 for k in range(len(regions))]
    raw_images, there = unit_sets(torch.tensor(regions), 12, seed)
    raw_texts, inside_text = unit_sets(inside(words), 12, seed + 1)
    images, texts = encoded(raw_images, there), encoded(raw_texts, inside_text)
    pairs, whole = rule.score_pairs(images, texts, *directions), rule.score(images, texts, *directions).diagonal()
    torch.testing.assert_close(pairs, whole)
    weight = torch.linspace(1, 2, len(words), dtype=torch.float64)
    ours = torch.autograd.grad((pairs * weight).sum(), (raw_images, raw_texts), retain_graph=True)
    theirs = torch.autograd.grad((whole * weight).sum(), (raw_images, raw_texts))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@settings(max_examples=25)
@given(rows_of_regions, rules, ways, st.integers(0, 99))
def test_without_gradients_the_passes_in_place_give_the_same(regions, rule, directions, seed):
    words = [1 + (seed + k) % 3 for k in range(len(regions))]
    images = encoded(*unit_sets(torch.tensor(regions), 12, seed))
    texts = encoded(*unit_sets(inside(words), 12, seed + 1))
    before = images.detach().clone(), texts.detach().clone()
    for score in (rule.score, rule.score_pairs):
        with torch.no_grad():
            found = score(images, texts, *directions)
        torch.testing.assert_close(found, score(images, texts, *directions).detach())
    assert torch.equal(images, before[0])
    assert torch.equal(texts, before[1])


@pytest.mark.parametrize("directions", [("t2i",), ("i2t",), ("t2i", "i2t")], ids="+".join)
@pytest.mark.parametrize("missing", [False, True])
def test_single_precision_is_exact_to_1e_5(directions, missing):
    torch.manual_seed(0)
    regions, words = torch.ones(3, 36, dtype=torch.bool), [12, 9, 12, 1]
    regions[1, 20:] = not missing
    images = encoded(torch.randn(3, 36, 64), regions)
    texts = encoded(torch.randn(4, 12, 64), inside(words))
    rule = Attention()
    expected = plain_scores(rule, images.double(), regions, texts.double(), words, directions)
    found = rule.score(images, texts, *directions)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("directions", [("t2i",), ("i2t",)], ids="+".join)
def test_more_of_the_same_raises_a_sum_but_not_a_mean_of_exponentials(directions):
    """A text whose words, or an image whose regions, all occur twice: the norm over queries is left out."""
    torch.manual_seed(0)
    image, text = (normalize(torch.randn(1, 3, 8, dtype=torch.float64), dim=2) for _ in range(2))
    twice = (image, text.repeat(1, 2, 1)) if directions == ("t2i",) else (image.repeat(1, 2, 1), text)
    for pool, more in (("lse", math.log(2) / 6), ("lme", 0.0)):
        rule = Attention(norm="clipped", pool=pool, lse=6.0)
        difference = rule.score(*twice, *directions) - rule.score(image, text, *directions)
        assert difference.item() == pytest.approx(more, abs=1e-12)


@pytest.mark.parametrize("directions", [("t2i",), ("i2t",), ("t2i", "i2t")], ids="+".join)
def test_gradients_of_the_mean_of_exponentials_are_those_of_finite_differences(directions):
    torch.manual_seed(0)
    there = torch.tensor([[True, True, True, False], [True, True, True, True]])
    raw_images, raw_texts = (torch.randn(2, places, 5, dtype=torch.float64, requires_grad=True) for places in (4, 3))
    rule = Attention(pool="lme", smooth=4.0)

    def score(images, texts):
        return rule.score(encoded(images, there), encoded(texts, inside([3, 2])), *directions)

    assert torch.autograd.gradcheck(score, (raw_images, raw_texts))


@pytest.mark.parametrize("limit", ["TEXTS", "PRODUCT", "BLOCK"])
@pytest.mark.parametrize(("focal", "pool"), [(None, "lse"), (None, "lme"), ("equal", "lse")])
def test_small_blocks_change_nothing(monkeypatch, limit, focal, pool):
    torch.manual_seed(0)
    regions = torch.ones(5, 4, dtype=torch.bool)
    regions[2, 1:] = False
    images = encoded(torch.randn(5, 4, 8, dtype=torch.float64), regions)
    texts = encoded(torch.randn(7, 6, 8, dtype=torch.float64), inside([3, 6, 3, 2, 6, 6, 3]))
    rule = Attention(focal=focal, pool=pool)
    before = rule.score(images, texts, "t2i", "i2t")
    monkeypatch.setattr(attention, limit, 2)
    torch.testing.assert_close(rule.score(images, texts, "t2i", "i2t"), before)


@pytest.mark.parametrize("focal", ["equal", "prob"])
def test_where_the_focus_would_keep_nothing_it_keeps_all(focal):
    rule = Attention(smooth=20.0, focal=focal, pool="mean")
    alone = torch.eye(4)[None, :1]  # one region: its weight is the mean
    alike = torch.eye(4)[None, :2]  # two that the word sees alike
    word = normalize(torch.tensor([[[1.0, 1.0, 0.0, 0.0]]]), dim=2)
    assert rule.score(alone, word, "t2i").item() == pytest.approx(0.5**0.5)
    assert rule.score(alike, word, "t2i").item() == pytest.approx(1.0)


@pytest.mark.parametrize("focal", ["equal", "prob"])
def test_the_focus_leaves_out_the_weak(focal):
    words = normalize(torch.tensor([[3.0, 2.0, 0.1], [0.1, 2.0, 3.0]]), dim=1)
    weights = Attention(smooth=20.0, focal=focal).weights(torch.eye(3), words, "t2i")
    assert weights.tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_weights_to_look_at_sum_to_one_and_make_the_score(direction):
    torch.manual_seed(0)
    regions = torch.tensor([[True, True, False, True]])
    image = encoded(torch.randn(1, 4, 8), regions)
    text = encoded(torch.randn(1, 3, 8), inside([2], extra=1))
    rule = Attention(pool="sum")
    weights = rule.weights(image[0], text[0], direction)
    queries, context = (text[0], image[0]) if direction == "t2i" else (image[0], text[0])
    assert weights.shape == (len(queries), len(context))
    asked = (queries != 0).any(1)
    torch.testing.assert_close(weights.sum(1), asked.float())
    assert (weights[:, (context == 0).all(1)] == 0).all()
    cosines = torch.cosine_similarity(queries[asked], (weights @ context)[asked])
    torch.testing.assert_close(cosines.sum(), rule.score(image, text, direction)[0, 0])


@pytest.mark.parametrize("norm", NORMS)
def test_orthogonal_sets_have_finite_gradients(norm):
    images, texts = torch.eye(6)[None, :3].requires_grad_(), torch.eye(6)[None, 3:].requires_grad_()
    for direction in ("t2i", "i2t"):
        Attention(norm=norm).score(images, texts, direction).sum().backward()
    assert images.grad.isfinite().all()
    assert texts.grad.isfinite().all()
