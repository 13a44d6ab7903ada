import numpy as np
import pytest
import torch

from diptych.errors import RecipeError
from diptych.text.features.pca import Covariance


def rows(count=40, entries=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, entries, generator=generator) @ torch.randn(entries, entries, generator=generator) + 3


def fitted(values, counts, size, at_once=7):
    covariance = Covariance(values.shape[1])
    for part, count in zip(values.split(at_once), counts.split(at_once), strict=True):
        covariance.add(part, count)
    return covariance.principal_components(size)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_components_are_those_of_the_singular_values(size):
    values = rows().double()
    made = fitted(values, torch.ones(len(values)), size)
    centred = values - values.mean(0)
    _, _, directions = torch.linalg.svd(centred)
    likeness = (made.components * directions[:size]).sum(1).abs()
    torch.testing.assert_close(likeness, torch.ones(size).double())
    torch.testing.assert_close(made(values).abs(), (centred @ directions[:size].T).abs())


def test_blocks_change_nothing_and_signs_are_fixed():
    values, counts = rows(), torch.ones(40)
    whole, parts = fitted(values, counts, 5, 40), fitted(values, counts, 5, 3)
    torch.testing.assert_close(whole.components, parts.components)
    largest = whole.components.gather(1, whole.components.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()


def test_counted_rows_are_repeated_rows():
    values, counts = rows(), torch.arange(40) % 3 + 1
    repeated = values.repeat_interleave(counts, 0)
    counted, plain = fitted(values, counts, 4), fitted(repeated, torch.ones(len(repeated)), 4)
    torch.testing.assert_close(counted.mean, plain.mean)
    torch.testing.assert_close(counted.components, plain.components)


@pytest.mark.parametrize(
    ("values", "rank"),
    [(rows(5), 4), (rows()[:, :1].expand(-1, 9), 1), (torch.ones(6, 9), 0)],
    ids=["few rows", "one direction", "equal rows"],
)
def test_more_components_than_the_rank_are_refused(values, rank):
    remedy = rf"size = {rank + 1}: the {len(values)} distinct training texts have only rank {rank}; set .* = {rank} or"
    with pytest.raises(RecipeError, match=remedy):
        fitted(values, torch.ones(len(values)), rank + 1)
    if rank:
        assert fitted(values, torch.ones(len(values)), rank).components.shape == (rank, 9)


def test_components_agree_with_scikit_learn():
    decomposition = pytest.importorskip("sklearn.decomposition")
    random = np.random.default_rng(0)
    values = random.normal(size=(60, 7)) @ random.normal(size=(7, 7)) + random.normal(size=7)
    covariance = Covariance(7)
    for part in np.split(values, [13, 40]):
        covariance.add(torch.from_numpy(part), torch.ones(len(part)))
    found = covariance.principal_components(3)
    theirs = decomposition.PCA(3, svd_solver="full").fit(values)
    signs = np.sign((found.components.numpy() * theirs.components_).sum(1))
    ours = found(torch.from_numpy(values).to(found.components.dtype)).numpy() * signs
    np.testing.assert_allclose(ours, theirs.transform(values), atol=1e-3)
