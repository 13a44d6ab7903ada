import numpy as np
import pytest
import torch

from diptych.errors import RecipeError
from diptych.text.features.ica import fit_ica


def sources(count=4000):
    """Independent sources that are not Gaussian: two heavy-tailed, one flat, one of two values."""
    generator = torch.Generator().manual_seed(3)
    uniform = torch.rand(count, 4, dtype=torch.float64, generator=generator)
    laplacian = -(uniform[:, :2] - 0.5).sign() * (1 - 2 * (uniform[:, :2] - 0.5).abs()).log()
    return torch.cat([laplacian, uniform[:, 2:3], (uniform[:, 3:] > 0.5).double()], 1)


MIXING = torch.tensor([[1.0, 0.5, 0.3, 0.2], [0.1, 1, 0.7, -0.4], [-0.6, 0.2, 1, 0.9], [0.3, -0.8, 0.1, 1]]).double()


def test_mixed_sources_are_found_again():
    wanted = sources()
    found = fit_ica(wanted @ MIXING.T + 5, torch.ones(len(wanted)))(wanted @ MIXING.T + 5)
    centred = (wanted - wanted.mean(0)) / wanted.std(0)
    likeness = (found.T @ centred / len(wanted)).abs()  # (components, sources)
    assert sorted(likeness.argmax(1).tolist()) == [0, 1, 2, 3]
    assert likeness.max(1).values.min() > 0.99


def test_components_have_mean_0_and_the_identity_as_covariance():
    vectors = sources() @ MIXING.T
    found = fit_ica(vectors, torch.ones(len(vectors)))(vectors)
    torch.testing.assert_close(found.mean(0), torch.zeros(4).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(found.T @ found / len(found), torch.eye(4).double(), atol=1e-9, rtol=0)


def test_counted_vectors_are_repeated_vectors():
    vectors, counts = sources(300) @ MIXING.T, torch.arange(300) % 4 + 1
    repeated = vectors.repeat_interleave(counts, 0)
    counted = fit_ica(vectors, counts)
    plain = fit_ica(repeated, torch.ones(len(repeated)))
    torch.testing.assert_close(counted.mean, plain.mean)
    torch.testing.assert_close(counted.matrix, plain.matrix, atol=1e-6, rtol=1e-6)


def test_the_seed_alone_decides():
    vectors, counts = sources(500) @ MIXING.T, torch.ones(500)
    assert torch.equal(fit_ica(vectors, counts, 1).matrix, fit_ica(vectors, counts, 1).matrix)
    assert not torch.equal(fit_ica(vectors, counts, 1).matrix, fit_ica(vectors, counts, 2).matrix)


def test_too_few_words_are_refused():
    vectors = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(RecipeError, match=r"size 4 but rank 2.*set model\.text\.ica = false$"):
        fit_ica(vectors, torch.ones(3))


def test_components_agree_with_scikit_learn():
    decomposition = pytest.importorskip("sklearn.decomposition")
    random = np.random.default_rng(0)
    signals = np.stack([random.laplace(size=4000), random.uniform(-1, 1, 4000), random.exponential(size=4000)], axis=1)
    mixed = torch.from_numpy(signals @ random.normal(size=(3, 3)))
    ours = fit_ica(mixed, torch.ones(len(mixed)))(mixed).numpy()
    theirs = decomposition.FastICA(3, whiten="unit-variance", random_state=0, tol=1e-6, max_iter=1000).fit_transform(
        mixed
    )
    for other in (theirs, signals):
        agreement = np.abs(np.corrcoef(ours.T, other.T)[:3, 3:])
        assert agreement.max(1).min() > 0.99
        assert sorted(agreement.argmax(1)) == [0, 1, 2]
