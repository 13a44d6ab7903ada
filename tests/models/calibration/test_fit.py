import numpy as np
import pytest

from diptych.errors import DataError
from diptych.models.calibration.calibration import FEATURES
from diptych.models.calibration.fit import CaptionedPhotos, _logistic_regression, fit_calibration

THINGS = ["dog", "car", "tree", "boat", "horse", "piano", "tent", "fire"]
SIZE = 16


def world(photos=240, noise=0.12, seed=0):
    """Photos of things, each with three captions; a text is the sum of its things, with noise in photos."""
    random = np.random.default_rng(seed)
    directions = dict(zip(THINGS, np.linalg.qr(random.standard_normal((SIZE, SIZE)))[0], strict=False))
    shown = [random.choice(THINGS, 2, replace=False, p=np.arange(8, 0, -1) / 36) for _ in range(photos)]

    def encode(texts):
        vectors = [sum((directions[w] for w in text.split() if w in directions), np.full(SIZE, 1e-3)) for text in texts]
        return np.stack([vector / np.linalg.norm(vector) for vector in vectors]).astype(np.float32)

    images = np.stack([directions[a] + directions[b] for a, b in shown]) + noise * random.standard_normal(
        (photos, SIZE)
    )
    images = (images / np.linalg.norm(images, axis=1, keepdims=True)).astype(np.float32)
    captions = [text for a, b in shown for text in (f"a {a} and a {b}", f"the {a} near a {b}", f"a {b}")]
    return CaptionedPhotos(images, captions, encode(captions), np.arange(photos).repeat(3)), encode, shown


def test_probabilities_are_right_about_photos_that_were_not_fitted():
    photos, encode, _ = world()
    calibration = fit_calibration(photos, encode, "model")
    assert calibration.figures["log_loss"] < 0.5 * calibration.figures["log_loss_of_a_constant"]
    others, _, shown = world(seed=0, photos=400)
    probabilities, right = [], []
    for thing in THINGS:
        query = encode([thing])
        about = calibration.describe_texts(query, [thing])
        probabilities.append(calibration.hits.probabilities(others.images @ query[0], about))
        right.append([thing in pair for pair in shown])
    probabilities, right = np.concatenate(probabilities), np.concatenate(right)
    assert probabilities[right].mean() > 0.8
    assert probabilities[~right].mean() < 0.1


def test_a_fit_is_the_same_each_time():
    photos, encode, _ = world(120)
    first, second = (fit_calibration(photos, encode, "model") for _ in range(2))
    assert first.hits.weights.tolist() == second.hits.weights.tolist()
    assert first.answers.bias == second.answers.bias
    assert first.answers.bias != first.hits.bias  # rare queries count for more


def test_too_few_photos_and_models_that_know_nothing_are_refused():
    photos, encode, _ = world(99)
    with pytest.raises(DataError, match="99 photos"):
        fit_calibration(photos, encode, "model")
    photos, encode, _ = world(150)
    opposite = CaptionedPhotos(-photos.images, photos.captions, photos.texts, photos.owners)
    with pytest.raises(DataError, match="no higher than others"):
        fit_calibration(opposite, encode, "model")
    silent = CaptionedPhotos(photos.images, ["of the"] * 150, photos.texts[:150], np.arange(150))
    with pytest.raises(DataError, match="no words that describe"):
        fit_calibration(silent, encode, "model")


def test_the_regression_agrees_with_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    features = random.standard_normal((4000, FEATURES)).astype(np.float32) * np.arange(1, FEATURES + 1)
    right = random.random(4000) < 1 / (1 + np.exp(-features @ np.linspace(-1, 1, FEATURES) - 0.3))
    weights = random.random(4000).astype(np.float32)
    fit, _ = _logistic_regression(features, right, weights)
    reference = linear_model.LogisticRegression(C=np.inf, max_iter=1000).fit(features, right, sample_weight=weights)
    assert fit.weights == pytest.approx(reference.coef_[0], rel=0.05, abs=0.02)
    assert fit.bias == pytest.approx(reference.intercept_[0], rel=0.05, abs=0.02)
