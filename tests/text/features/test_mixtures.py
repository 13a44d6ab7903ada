import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.text.features.mixtures import FLOOR, CountedWords, Mixture, em_step, fit_mixture, initial_mixture


def clusters(seed=0, words=400):
    """Words around three places, along one dimension heavy-tailed and along the other Gaussian, with counts."""
    random = np.random.default_rng(seed)
    which = random.integers(0, 3, words)
    places = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 15.0]])[which]
    spread = np.stack([random.laplace(0, 1, words), random.normal(0, 1.5, words)], 1)
    return torch.from_numpy(places + spread), torch.from_numpy(random.integers(1, 5, words))


def plain_density(mixture, word):
    """The density of one word, entry by entry."""
    total = 0.0
    for weight, locations, scales, kinds in zip(*(each.tolist() for each in vars(mixture).values()), strict=True):
        density = weight
        for x, m, s, laplacian in zip(word.tolist(), locations, scales, kinds, strict=True):
            if laplacian:
                density *= math.exp(-abs(x - m) / s) / (2 * s)
            else:
                density *= math.exp(-((x - m) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        total += density
    return total


MIXTURE = Mixture(
    torch.tensor([0.3, 0.7]).double(),
    torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]]).double(),
    torch.tensor([[0.5, 1.5, 1.0], [2.0, 0.7, 0.9]]).double(),
    torch.tensor([[True, False, False], [False, True, True]]),
)


def test_the_density_is_that_of_its_definition():
    words = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
    joint = MIXTURE.log_joint(MIXTURE.deviations(words))
    expected = [plain_density(MIXTURE, word) for word in words]
    torch.testing.assert_close(joint.logsumexp(1).exp(), torch.tensor(expected).double())


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_likelihood_never_falls(hybrid):
    vectors, counts = clusters()
    words = CountedWords.from_vectors(vectors, counts)
    mixture, likelihoods = initial_mixture(words, 5, 0), []
    for _ in range(30):
        mixture, likelihood = em_step(mixture, words, hybrid=hybrid)
        likelihoods.append(likelihood)
    assert np.diff(likelihoods).min() > -1e-9
    assert likelihoods[-1] > likelihoods[0] + 0.1


def test_clusters_are_found_with_their_kinds():
    vectors, counts = clusters(words=3000)
    words = CountedWords.from_vectors(vectors, counts)
    mixture = fit_mixture(words, 3, hybrid=True, iterations=100, seed=0)
    order = mixture.locations.sum(1).argsort()
    expected = torch.tensor([[0.0, 0.0], [12.0, 0.0], [0.0, 15.0]]).double()
    torch.testing.assert_close(mixture.locations[order], expected, atol=0.3, rtol=0)
    torch.testing.assert_close(mixture.scales[order], torch.tensor([[1, 1.5]] * 3).double(), atol=0.2, rtol=0)
    assert mixture.laplacian.tolist() == [[True, False]] * 3
    torch.testing.assert_close(mixture.weights, torch.full((3,), 1 / 3).double(), atol=0.05, rtol=0)
    assert not fit_mixture(words, 3, hybrid=False, iterations=100, seed=0).laplacian.any()


@pytest.mark.parametrize("hybrid", [False, True])
def test_counted_words_are_repeated_words(hybrid):
    vectors, counts = clusters(words=60)
    mixture = initial_mixture(CountedWords.from_vectors(vectors, counts), 4, 0)
    repeated = vectors.repeat_interleave(counts, 0)
    for words in (
        counted := CountedWords.from_vectors(vectors, counts),
        CountedWords.from_vectors(repeated, torch.ones(len(repeated))),
    ):
        made, likelihood = em_step(mixture, words, hybrid=hybrid)
        if words is counted:
            first, first_likelihood = made, likelihood
    assert likelihood == pytest.approx(first_likelihood)
    for name in ("weights", "locations", "scales", "laplacian"):
        torch.testing.assert_close(getattr(made, name), getattr(first, name), msg=name)


def test_one_step_of_one_gaussian_is_the_mean_and_the_deviation():
    vectors, counts = clusters(words=50)
    words = CountedWords.from_vectors(vectors, counts)
    mixture, _ = em_step(initial_mixture(words, 1, 0), words, hybrid=False)
    repeated = vectors.repeat_interleave(counts, 0)
    torch.testing.assert_close(mixture.locations[0], repeated.mean(0))
    torch.testing.assert_close(mixture.scales[0], repeated.std(0, unbiased=False))


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 3)), min_size=1, max_size=12))
def test_no_place_is_nearer_to_all_than_the_median(pairs):
    values, weights = torch.tensor(pairs).double().unbind(1)
    if weights.sum() == 0:
        weights = weights + 1
    median = CountedWords.from_vectors(values.unsqueeze(1), weights).medians(weights)
    distance = weights @ (values - median).abs()
    assert all(distance <= weights @ (values - other).abs() + 1e-9 for other in values)


def test_a_centre_of_one_word_keeps_a_scale():
    vectors = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [50.0, 50.0]]).double()
    words = CountedWords.from_vectors(vectors, torch.tensor([5, 5, 5, 100]))
    mixture = fit_mixture(words, 2, hybrid=True, iterations=50, seed=0)
    floor = FLOOR * words.deviation().square().mean().sqrt()
    assert mixture.scales.min() == pytest.approx(float(floor))
    assert all(torch.isfinite(value).all() for value in vars(mixture).values())


def test_a_centre_without_words_stays_and_breaks_nothing():
    vectors, counts = clusters(words=30)
    words = CountedWords.from_vectors(vectors, counts)
    start = initial_mixture(words, 2, 0)
    far = start.locations.clone()
    far[1] = 1e9
    made, _ = em_step(Mixture(start.weights, far, start.scales, start.laplacian), words, hybrid=True)
    assert made.locations[1].tolist() == [1e9, 1e9]
    assert all(torch.isfinite(value).all() for value in vars(made).values())
    assert made.weights[1] > 0


def test_the_result_depends_on_the_seed_and_progress_is_reported():
    vectors, counts = clusters(words=60)
    words = CountedWords.from_vectors(vectors, counts)
    reported = []
    first = fit_mixture(words, 4, hybrid=True, iterations=3, seed=5, progress=lambda *each: reported.append(each))
    assert torch.equal(first.locations, fit_mixture(words, 4, hybrid=True, iterations=3, seed=5).locations)
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_fewer_words_than_centres_are_refused():
    words = CountedWords.from_vectors(torch.tensor([[1.0], [2.0], [2.0]]), torch.ones(3))
    with pytest.raises(RecipeError, match=r"centres = 3: the training texts have 2 distinct.*centres = 2 or less$"):
        initial_mixture(words, 3, 0)
    assert sorted(initial_mixture(words, 2, 0).locations[:, 0].tolist()) == [1, 2]


def test_a_step_of_em_agrees_with_scikit_learn():
    mixture = pytest.importorskip("sklearn.mixture")
    random = np.random.default_rng(0)
    values = random.normal(size=(200, 4)) @ random.normal(size=(4, 4)) + random.normal(size=4)
    values = torch.from_numpy(values)
    words = CountedWords.from_vectors(values, torch.ones(len(values)))
    start = initial_mixture(words, 3, seed=0)
    ours, before = em_step(start, words, hybrid=False)
    theirs = mixture.GaussianMixture(
        3,
        covariance_type="diag",
        reg_covar=0,
        max_iter=1,
        weights_init=start.weights.numpy(),
        means_init=start.locations.numpy(),
        precisions_init=start.scales.numpy() ** -2,
    )
    with pytest.warns(match="did not converge"):
        theirs.fit(values.numpy())
    np.testing.assert_allclose(ours.weights, theirs.weights_, rtol=1e-6)
    np.testing.assert_allclose(ours.locations, theirs.means_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.scales.square(), theirs.covariances_, rtol=1e-5)
    assert em_step(ours, words, hybrid=False)[1] == pytest.approx(theirs.score(values.numpy()), rel=1e-6)
    assert em_step(ours, words, hybrid=False)[1] > before
