"""The scores as functions, against the matchers and against the equations, one pair at a time."""

import inspect

import pytest
import torch
from torch.nn.functional import leaky_relu, normalize

from diptych.errors import ScoreError
from diptych.models.matchers.bfan import BFANSettings
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.objectives.hinge import Hinge
from diptych.objectives.score_functions import bfan_scores, order_scores, scan_scores

IMAGES, TEXTS = torch.randn(4, 6).double(), torch.randn(5, 6).double()
REGIONS, WORDS = torch.randn(3, 4, 6).double(), torch.randn(5, 7, 6).double()
REGION_COUNTS, WORD_COUNTS = [4, 2, 3], [7, 1, 3, 5, 2]


def slow_order(image, text, root):
    beyond = sum(max(0.0, float(t - i)) ** 2 for i, t in zip(image, text, strict=True))
    return -(beyond**0.5) if root else -beyond


def slow_scan(regions, words, smooth, lse):
    """Eq. 1-9 of SCAN, t2i, with every attended vector computed."""
    regions, words = normalize(regions, dim=1), normalize(words, dim=1)
    cosines = leaky_relu(regions @ words.t(), 0.1)
    weights = (smooth * cosines / cosines.norm(dim=1, keepdim=True)).softmax(0)
    relevance = torch.stack([torch.cosine_similarity(w, weights[:, j] @ regions, dim=0) for j, w in enumerate(words)])
    return (lse * relevance).exp().sum().log() / lse


def slow_focus(queries, context, smooth):
    """One direction of BFAN with `equal` focus: weights above the mean, all others 0."""
    queries, context = normalize(queries, dim=1), normalize(context, dim=1)
    cosines = leaky_relu(context @ queries.t(), 0.1)
    weights = (smooth * cosines / cosines.norm(dim=1, keepdim=True)).softmax(0)
    kept = weights * (weights >= weights.mean(0) * (1 - 1e-9))
    found = [torch.cosine_similarity(q, kept[:, j] @ context, dim=0) for j, q in enumerate(queries)]
    return torch.stack(found).mean()


def pair_by_pair(score, regions, words, region_counts, word_counts):
    return torch.stack(
        [
            torch.stack([score(image[:rows], text[:columns]) for text, columns in zip(words, word_counts, strict=True)])
            for image, rows in zip(regions, region_counts, strict=True)
        ]
    )


def padded(sets, counts):
    """Zeros beyond the counts."""
    return sets * (torch.arange(sets.shape[1]) < torch.tensor(counts)[:, None])[:, :, None]


@pytest.mark.parametrize("root", [False, True])
def test_order_scores(root):
    scores = order_scores(IMAGES, TEXTS, root=root)
    expected = [[slow_order(image, text, root) for text in TEXTS] for image in IMAGES]
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64))
    settings = OrderSettings(root=root, joint=6, image={"name": "features"}, text={"name": "gru", "hidden": 6})
    matcher = settings.for_data(3, (6,)).build()
    assert torch.equal(scores, matcher.score(IMAGES, TEXTS))


def test_scan_scores():
    scores = scan_scores(REGIONS, WORDS, region_counts=REGION_COUNTS, word_counts=WORD_COUNTS)
    expected = pair_by_pair(lambda v, w: slow_scan(v, w, 9.0, 6.0), REGIONS, WORDS, REGION_COUNTS, WORD_COUNTS)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(scan_scores(padded(REGIONS, REGION_COUNTS), padded(WORDS, WORD_COUNTS)), scores)


def test_bfan_scores():
    def slow(regions, words):
        return slow_focus(words, regions, 20.0) + slow_focus(regions, words, 20.0)

    scores = bfan_scores(REGIONS, WORDS, region_counts=REGION_COUNTS, word_counts=torch.tensor(WORD_COUNTS))
    torch.testing.assert_close(scores, pair_by_pair(slow, REGIONS, WORDS, REGION_COUNTS, WORD_COUNTS))
    torch.testing.assert_close(bfan_scores(padded(REGIONS, REGION_COUNTS), padded(WORDS, WORD_COUNTS)), scores)


@pytest.mark.parametrize(
    ("function", "settings", "options"),
    [
        (scan_scores, SCANSettings, {}),
        (scan_scores, SCANSettings, {"direction": "i2t", "smooth": 4.0, "lse": 5.0}),
        (scan_scores, SCANSettings, {"pool": "lme"}),
        (scan_scores, SCANSettings, {"norm": "l1norm", "pool": "max"}),
        (bfan_scores, BFANSettings, {}),
        (bfan_scores, BFANSettings, {"focal": "prob", "smooth": 10.0}),
    ],
)
def test_they_are_the_scores_of_the_matchers(function, settings, options):
    matcher = settings(**options, joint=6).for_data(3, (4, 6)).build()
    units = normalize(padded(REGIONS, REGION_COUNTS), dim=2), normalize(padded(WORDS, WORD_COUNTS), dim=2)
    torch.testing.assert_close(function(*units, **options), matcher.score(*units))


@pytest.mark.parametrize(("function", "settings"), [(scan_scores, SCANSettings), (bfan_scores, BFANSettings)])
def test_the_defaults_are_those_of_the_models(function, settings):
    options = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("regions", "words", "region_counts", "word_counts")
    }
    assert options
    assert options == {name: settings.model_fields[name].default for name in options}


def test_gradients_reach_both_sides_and_no_empty_place():
    regions, words = REGIONS.clone().requires_grad_(), WORDS.clone().requires_grad_()
    scan_scores(regions, words, word_counts=WORD_COUNTS).sum().backward()
    assert (regions.grad.norm(dim=2) > 0).all()
    assert ((words.grad.norm(dim=2) > 0).sum(1) == torch.tensor(WORD_COUNTS)).all()


def test_they_are_similarities_of_objectives():
    images, texts = torch.randn(4, 6), torch.randn(4, 6)
    direct = Hinge()(order_scores(images, texts))
    assert torch.equal(Hinge()(images=images, texts=texts, similarity=order_scores), direct)
    assert Hinge()(images=REGIONS, texts=WORDS[:3], similarity=scan_scores).isfinite()


@pytest.mark.parametrize("function", [order_scores, scan_scores, bfan_scores])
def test_they_are_computed_in_single_precision(function):
    sides = (IMAGES, TEXTS) if function is order_scores else (REGIONS, WORDS)
    half = [side.bfloat16() for side in sides]
    with torch.autocast("cpu", torch.bfloat16):
        scores = function(*half)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, function(*(side.float() for side in half)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: order_scores(REGIONS, TEXTS), r"images of shape \(3, 4, 6\); pass \(items, size\)"),
        (lambda: order_scores(IMAGES, TEXTS[:, :5]), "images of size 6 and texts of size 5; use one size"),
        (lambda: order_scores(IMAGES, TEXTS.to("meta")), "texts on meta, the rest of the batch on cpu"),
        (lambda: order_scores(IMAGES.long(), TEXTS), "images of torch.int64"),
        (lambda: scan_scores(IMAGES, WORDS), r"regions of shape \(4, 6\); pass \(items, places, size\)"),
        (lambda: scan_scores(REGIONS, WORDS * torch.nan), "words contain values that are not finite"),
        (lambda: scan_scores(REGIONS, WORDS, word_counts=[1, 2, 3, 0, 1]), r"words\[3\] is empty; each needs at least"),
        (lambda: scan_scores(REGIONS * 0, WORDS), r"regions\[0\] is empty"),
        (lambda: scan_scores(REGIONS, WORDS, word_counts=[1, 2]), r"the counts of words of shape \(2,\); pass \(5,\)"),
        (
            lambda: scan_scores(REGIONS, WORDS, word_counts=[1, 2, 3, 99, 1]),
            f"the counts of words go up to 99, but there are {WORDS.shape[1]} places",
        ),
        (lambda: scan_scores(REGIONS, WORDS, norm="l3norm"), "norm = 'l3norm'"),
        (lambda: bfan_scores(REGIONS, WORDS, smooth=-1.0), "smooth = -1.0"),
    ],
)
def test_what_cannot_be_scored(call, message):
    with pytest.raises(ScoreError, match=f"^{message}"):
        call()
