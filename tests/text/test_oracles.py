"""Principal components, independent components, mixtures, tf-idf and CCA agree with scikit-learn's."""

import numpy as np
import pytest
import torch

from diptych.models.matchers.cca import Moments, canonical
from diptych.text.features.bags import known_tokens
from diptych.text.features.ica import fit_ica
from diptych.text.features.mixtures import CountedWords, em_step, initial_mixture
from diptych.text.features.pca import Covariance
from diptych.text.features.tfidf import inverse_document_frequency, tfidf
from diptych.text.vocabulary import SPECIALS, Vocabulary

decomposition = pytest.importorskip("sklearn.decomposition")
mixture = pytest.importorskip("sklearn.mixture")
cross = pytest.importorskip("sklearn.cross_decomposition")
extraction = pytest.importorskip("sklearn.feature_extraction.text")


def rows(count, size, seed=0):
    """Rows whose entries correlate."""
    random = np.random.default_rng(seed)
    return random.normal(size=(count, size)) @ random.normal(size=(size, size)) + random.normal(size=size)


def test_principal_components():
    values = rows(60, 7)
    covariance = Covariance(7)
    for part in np.split(values, [13, 40]):
        covariance.add(torch.from_numpy(part), torch.ones(len(part)))
    found = covariance.principal_components(3)
    theirs = decomposition.PCA(3, svd_solver="full").fit(values)
    signs = np.sign((found.components.numpy() * theirs.components_).sum(1))
    ours = found(torch.from_numpy(values).to(found.components.dtype)).numpy() * signs
    np.testing.assert_allclose(ours, theirs.transform(values), atol=1e-3)


def test_independent_components():
    random = np.random.default_rng(0)
    sources = np.stack([random.laplace(size=4000), random.uniform(-1, 1, 4000), random.exponential(size=4000)], axis=1)
    mixed = torch.from_numpy(sources @ random.normal(size=(3, 3)))
    ours = fit_ica(mixed, torch.ones(len(mixed)))(mixed).numpy()
    theirs = decomposition.FastICA(3, whiten="unit-variance", random_state=0, tol=1e-6, max_iter=1000).fit_transform(
        mixed
    )
    for other in (theirs, sources):
        agreement = np.abs(np.corrcoef(ours.T, other.T)[:3, 3:])
        assert agreement.max(1).min() > 0.99
        assert sorted(agreement.argmax(1)) == [0, 1, 2]


def test_a_step_of_expectation_maximisation():
    values = torch.from_numpy(rows(200, 4))
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


def test_tf_idf():
    texts = ["a red dog", "a dog and a dog", "two red stars", "stars"]
    vocabulary = Vocabulary.from_texts(texts, 1)
    table = vocabulary.encode_all(texts)
    weights = torch.from_numpy(inverse_document_frequency(table, len(vocabulary)))
    ids, _ = table.batch(np.arange(len(texts)))
    known = torch.arange(len(vocabulary)) >= len(SPECIALS)
    ours = tfidf(*known_tokens(torch.from_numpy(ids), known), weights)
    theirs = extraction.TfidfVectorizer(vocabulary=list(vocabulary.words), token_pattern=r"\S+").fit_transform(texts)
    np.testing.assert_allclose(ours.numpy()[:, -len(vocabulary.words) :], theirs.toarray(), atol=1e-6)


def test_canonical_correlations():
    random = np.random.default_rng(0)
    shared = random.normal(size=(500, 2))
    images = np.concatenate([shared, random.normal(size=(500, 3))], 1) @ random.normal(size=(5, 5))
    texts = np.concatenate([shared + 0.5 * random.normal(size=(500, 2)), random.normal(size=(500, 2))], 1)
    moments = Moments.none(5, 4)
    moments.add(torch.from_numpy(images), torch.from_numpy(texts))
    ours = canonical(moments, 0.0).correlations[:2].numpy()
    x, y = cross.CCA(2, max_iter=5000, tol=1e-12).fit_transform(images, texts)
    theirs = [np.corrcoef(x[:, k], y[:, k])[0, 1] for k in range(2)]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
