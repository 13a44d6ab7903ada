"""The blocked score of order embeddings against the broadcast formula, and against loops over single numbers."""

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.scores import embedding_score
from diptych.models.matcher import ModelSettings
from diptych.models.matchers import order
from diptych.models.matchers.order import Order, OrderSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import Tokens
from diptych.registry import resolve

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))


def built(settings):
    torch.manual_seed(0)
    return settings.for_data(vocabulary_size=9, feature_shape=(6,)).build().eval()


@functools.cache
def scorer(**options):
    """A matcher that can score and has no weights."""
    with torch.device("meta"):
        return (
            OrderSettings(joint=5, text_projection=True, **options)
            .for_data(vocabulary_size=9, feature_shape=(6,))
            .build()
        )


def plain(images, texts, root=False):
    """The equation, all differences at once; the root is taken only where there is something to take it of."""
    squares = (texts[None] - images[:, None]).clamp(min=0).pow(2).sum(2)
    if not root:
        return -squares
    beyond = squares > 0
    return -torch.where(beyond, torch.where(beyond, squares, 1.0).sqrt(), 0.0)


@st.composite
def embeddings(draw):
    images, texts, joint = draw(st.integers(1, 13)), draw(st.integers(1, 13)), draw(st.integers(1, 9))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    scale = draw(st.sampled_from([1.0, 1e-3, 30.0]))
    sides = [scale * torch.randn(rows, joint, generator=random, dtype=torch.float64) for rows in (images, texts)]
    if draw(st.booleans()):  # some texts lie wholly within some images, where the norm has no derivative
        sides[1][0] = sides[0][0] - draw(st.sampled_from([0.0, 1.0]))
    return sides


@settings(max_examples=40)
@given(embeddings(), st.booleans(), st.sampled_from([1, 7, 40, 200, 1 << 20]))
def test_value_and_gradients_equal_the_broadcast_formula(sides, root, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "BLOCK", block)
        results = []
        for score in (scorer(root=root).score, lambda images, texts: plain(images, texts, root)):
            images, texts = (side.clone().requires_grad_() for side in sides)
            scores = score(images, texts)
            (scores * torch.linspace(-1, 2, scores.numel(), dtype=torch.float64).view_as(scores)).sum().backward()
            results.append((scores.detach(), images.grad, texts.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("root", [False, True])
def test_the_gradient_is_that_of_finite_differences(root, monkeypatch):
    monkeypatch.setattr(order, "BLOCK", 12)
    random = torch.Generator().manual_seed(1)
    images, texts = (torch.randn(rows, 4, generator=random, dtype=torch.float64, requires_grad=True) for rows in (5, 7))
    assert torch.autograd.gradcheck(scorer(root=root).score, (images, texts))


def test_a_score_by_hand():
    images, texts = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 9.0]]), torch.tensor([[4.0, 6.0, -5.0]])
    assert scorer().score(images, texts).tolist() == [[-25.0], [-52.0]]  # 3 and 4 beyond; 4 and 6 beyond
    assert scorer(root=True).score(images, texts).tolist() == [[-5.0], [pytest.approx(-math.sqrt(52))]]


@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-6])
def test_where_embeddings_become_equal_only_the_norm_keeps_its_gradient(gap):
    """Max of hinges makes all embeddings nearly equal at first; with the square, nothing moves them from there."""
    images = torch.full((1, 4), 0.5, dtype=torch.float64)
    lengths = {}
    for root in (False, True):
        texts = (images + gap * torch.tensor([0.6, 0.8, -1.0, 0.0])).requires_grad_()  # 0.6 and 0.8 beyond the image
        scorer(root=root).score(images, texts).sum().backward()
        lengths[root] = texts.grad.norm().item()
    assert lengths == {False: pytest.approx(2 * gap), True: pytest.approx(1.0)}


def test_a_text_within_an_image_has_the_best_score_but_not_the_other_way_round():
    specific, general = torch.tensor([[0.5, 0.7, 0.2]]), torch.tensor([[0.5, 0.1, 0.0]])
    assert scorer().score(specific, general).item() == 0
    assert scorer().score(general, specific).item() < 0


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("gap", [0.0, 1e-30, 1e-22, 1e-18, 1e-12])
def test_gradients_are_finite_however_small_the_norm(root, gap):
    images = torch.zeros(2, 3, requires_grad=True)
    texts = torch.full((2, 3), gap, requires_grad=True)
    scorer(root=root).score(images, texts).sum().backward()
    for side in (images, texts):
        assert side.grad.isfinite().all()
        assert side.grad.abs().max() <= 2.1  # two unit vectors at most, or nearly nothing for squares


def test_memory_is_that_of_a_block(monkeypatch):
    """The most differences that are ever held, forward and backward, are watched."""
    largest, block, matcher = 0, 4096, scorer()

    class ProgressCallback(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.dim() in (1, 3):  # a buffer, or differences in it
                largest = max(largest, result.numel())
            return result

    monkeypatch.setattr(order, "BLOCK", block)
    for images, texts in ((200, 1), (1, 200), (40, 50)):
        largest = 0
        sides = torch.randn(images, 64, requires_grad=True), torch.randn(texts, 64, requires_grad=True)
        with ProgressCallback():
            matcher.score(*sides).sum().backward()
        assert 0 < largest <= block


def test_it_scores_what_was_encoded_for_inference():
    matcher = scorer()
    with torch.inference_mode():
        images, texts = torch.randn(9, 5), torch.randn(8, 5)
    torch.testing.assert_close(matcher.score(images, texts), plain(images, texts))  # outside of it, as search does
    with torch.inference_mode():
        torch.testing.assert_close(matcher.score(images, texts), plain(images, texts))


def test_equal_embeddings_tie_wherever_they_lie(monkeypatch):
    monkeypatch.setattr(order, "BLOCK", 33 * 30)
    random = torch.Generator().manual_seed(3)
    images, texts = torch.randn(21, 33, generator=random), torch.randn(1, 33, generator=random).expand(50, 33)
    scores = scorer().score(images, texts)
    assert (scores == scores[:, :1]).all()
    groups = np.arange(20)
    ranked = ranks(embedding_score(scorer().score, images[:20], texts[:20]), groups, groups, block=77)
    assert (ranked.images == 20).all()  # equal scores rank worse


@pytest.mark.parametrize("absolute", [False, True])
def test_encodings_are_those_of_vse_and_absolute_when_asked(absolute):
    common = {"joint": 5, "text_projection": True}
    mine, theirs = built(OrderSettings(absolute=absolute, **common)), built(VSESettings(**common))
    pictures = torch.randn(3, 6)
    for found, expected in (
        (mine.encode_images(pictures), theirs.encode_images(pictures)),
        (mine.encode_texts(TOKENS), theirs.encode_texts(TOKENS)),
    ):
        assert (expected < 0).any()
        torch.testing.assert_close(found, expected.abs() if absolute else expected)
        torch.testing.assert_close(found.norm(dim=1), torch.ones(len(found)))


def test_a_recipe_can_name_it_and_what_it_fits_is_an_order_matcher():
    section = {"name": "order", "absolute": True, "joint": 5, "text_projection": True}
    settings = resolve("models.matchers", section, "model", ModelSettings)
    fitted = settings.for_data(vocabulary_size=9, feature_shape=(6,))
    assert isinstance(fitted, OrderSettings)
    assert fitted.absolute
    assert isinstance(fitted.build(), Order)
    assert resolve("models.matchers", fitted.model_dump(mode="json"), "model", ModelSettings) == fitted
