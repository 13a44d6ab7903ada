"""Canonical correlations against numpy's generalised eigenvalue problem, and against what they promise of the data."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.cca import CCASettings, Moments, canonical
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.registry import resolve
from diptych.training.engine.trainable import set_trainable

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0], [1, 7, 7, 2]]), torch.tensor([4, 3, 4]))


def data(pairs=60, images=6, texts=4, seed=0):
    """Two sides that share two things, with noise, far from the origin and of uneven scales."""
    random = torch.Generator().manual_seed(seed)
    shared = torch.randn(pairs, 2, generator=random, dtype=torch.float64)

    def side(size):
        mixed = shared @ torch.randn(2, size, generator=random, dtype=torch.float64)
        noise = torch.randn(pairs, size, generator=random, dtype=torch.float64)
        return (mixed + noise) * torch.arange(1, size + 1) + 10

    return side(images), side(texts)


def matcher(images=6, texts=4, **changes):
    torch.manual_seed(0)
    text = GRUSettings(hidden=texts, word=3)
    settings = {"joint": 3, "regularisation": 1e-4, **changes}
    return CCASettings(image=FeatureSettings(shape=(images,)), text=text, words=9, **settings).build()


def solve(made):
    """Take over the only solution."""
    (solution,) = made.solutions()
    made.adopt(solution)


def solved(images, texts, **changes):
    made = matcher(images.shape[1], texts.shape[1], **changes)
    made.accumulate_vectors(images.float(), texts.float())
    solve(made)
    return made


def eigenvalues(images, texts, regularisation):
    """The largest eigenvalues and vectors of [0 S_xy; S_yx 0] w = l [S_xx + r 0; 0 S_yy + r] w."""
    images, texts = np.asarray(images), np.asarray(texts)
    first, across = images.shape[1], np.cov(images.T, texts.T, bias=True)
    left, right = across.copy(), np.zeros_like(across)
    for own in (slice(None, first), slice(first, None)):
        ridge = regularisation * np.diag(across)[own].mean()
        right[own, own] = across[own, own] + ridge * np.eye(len(across[own, own]))
        left[own, own] = 0
    values, vectors = np.linalg.eig(np.linalg.solve(right, left))
    order = np.argsort(-values.real)[: min(first, len(across) - first)]
    return values.real[order], vectors.real[:first, order], vectors.real[first:, order]


@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e-4, 0.1]), st.sampled_from([(6, 4), (3, 5), (4, 4)]))
def test_directions_solve_the_generalised_eigenvalue_problem(seed, regularisation, sizes):
    images, texts = data(40, *sizes, seed)
    moments = Moments.none(*sizes)
    moments.add(images, texts)
    found = canonical(moments, regularisation)
    values, *sides = eigenvalues(images, texts, regularisation)
    np.testing.assert_allclose(found.correlations.numpy(), values, atol=1e-8)
    for own, wanted in zip((found.images, found.texts), sides, strict=True):
        cosines = (own.numpy() * wanted).sum(0) / np.linalg.norm(own, axis=0) / np.linalg.norm(wanted, axis=0)
        np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-6)


def test_without_a_ridge_projections_have_variance_one_and_correlate_with_their_like_alone():
    images, texts = data()
    moments = Moments.none(6, 4)
    moments.add(images, texts)
    found = canonical(moments, 0.0)
    left, right = (images - images.mean(0)) @ found.images, (texts - texts.mean(0)) @ found.texts
    torch.testing.assert_close(left.t() @ left / 60, torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(left.t() @ right / 60, found.correlations.diag())
    assert (found.correlations.diff() < 0).all()
    assert found.correlations[0] > 0.7


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 100))
def test_blocks_add_up_to_the_whole(sizes, seed):
    pairs = sum(sizes)
    if not pairs:
        return
    images, texts = (side + 1e6 for side in data(pairs, seed=seed))  # far off: squares would lose all digits
    moments = Moments.none(6, 4)
    for rows in torch.arange(pairs).split(sizes):
        moments.add(images[rows], texts[rows])
    assert moments.pairs == pairs
    left, right = images - images.mean(0), texts - texts.mean(0)
    torch.testing.assert_close(moments.image_mean, images.mean(0), rtol=1e-14, atol=0)
    torch.testing.assert_close(moments.text_mean, texts.mean(0), rtol=1e-14, atol=0)
    for total, wanted in ((moments.images, left.t() @ left), (moments.texts, right.t() @ right)):
        torch.testing.assert_close(total, wanted, rtol=1e-7, atol=1e-6)
    torch.testing.assert_close(moments.across, left.t() @ right, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("power", [0.0, 1.0, 4.0])
def test_encodings_are_projections_weighed_by_a_power_of_their_eigenvalues(power):
    images, texts = data()
    made = solved(images, texts, power=power, regularisation=0.0)
    moments = Moments.none(6, 4)
    moments.add(images, texts)
    found = canonical(moments, 0.0)
    every = torch.cat([images - images.mean(0), texts - texts.mean(0)], 1)
    whole = every.t() @ every
    apart = torch.block_diag(whole[:6, :6], whole[6:, 6:])
    eigenvalues = torch.linalg.eigvals(torch.linalg.solve(apart, whole)).real.sort(descending=True).values
    weights = eigenvalues[:3] ** power
    wanted = ((images - images.mean(0)) @ found.images[:, :3]) * weights
    wanted = (wanted / wanted.norm(dim=1, keepdim=True)).float()
    encoded = made.encode_images(images.float())
    signs = (encoded * wanted).sum(0).sign()
    torch.testing.assert_close(encoded, wanted * signs, atol=1e-4, rtol=0)
    torch.testing.assert_close(made.correlations, found.correlations[:3].float(), atol=1e-5, rtol=0)


def test_pairs_score_higher_than_others():
    images, texts = data(200)
    made = solved(images, texts, joint=2)
    made.text.forward = lambda tokens: tokens.features
    encoded = made.encode_images(images.float()), made.encode_texts(Tokens(TOKENS.ids, TOKENS.lengths, texts.float()))
    scores = made.score(*encoded)
    assert scores.shape == (200, 200)
    assert scores.abs().max() <= 1 + 1e-6
    assert scores.diagonal().mean() > scores.mean() + 0.5
    torch.testing.assert_close(made.score_pairs(*encoded), scores.diagonal())


def test_a_batch_is_accumulated_pair_by_pair():
    images = torch.randn(3, 6)
    image_of, text_of = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 2, 1])
    batched, by_hand = matcher(joint=2), matcher(joint=2)
    assert batched.solves_in_closed_form
    batched.accumulate(images, TOKENS, image_of, text_of)
    by_hand.accumulate_vectors(images[image_of], by_hand.text(TOKENS)[text_of])
    for each in (batched, by_hand):
        solve(each)
    assert batched.correlations.any()
    for name, tensor in batched.state_dict().items():
        assert torch.equal(tensor, by_hand.state_dict()[name]), name


def test_more_directions_than_the_data_has_are_refused():
    images, texts = data(60)
    images[:, 2:] = images[:, :2] @ torch.randn(2, 4, dtype=torch.float64)  # two directions, six numbers
    made = matcher(joint=3)
    made.accumulate_vectors(images, texts)
    with pytest.raises(RecipeError, match=r"model\.joint = 3: .* 60 training pairs .* set model\.joint = 2 or less"):
        solve(made)
    with pytest.raises(RecipeError, match=r"set model\.joint = 4 or less"):
        solved(*data(60), joint=5)
    with pytest.raises(RecipeError, match=r"set model\.joint = 2 or less"):
        solved(*data(3), joint=3)  # three pairs lie in a plane
    assert solved(*data(3), joint=2).embedding_dim == 2


def test_what_has_no_inverse_needs_a_ridge():
    images, texts = data(60)
    images[:, 5] = 7.0  # a number that never changes
    made = matcher(regularisation=0.0)
    made.accumulate_vectors(images, texts)
    with pytest.raises(RecipeError, match=r"model\.regularisation = 0: the images' covariance has no inverse"):
        solve(made)
    assert solved(images, texts).embedding_dim == 3


@pytest.mark.parametrize("pairs", [0, 1])
def test_too_few_pairs_are_refused(pairs):
    made = matcher()
    made.accumulate_vectors(*(side[:pairs] for side in data()))
    with pytest.raises(RecipeError, match="fewer than two pairs"):
        solve(made)


def test_what_was_added_is_forgotten_and_a_run_carries_what_was_found():
    images, texts = data()
    made, other = solved(images, texts), matcher()
    with pytest.raises(RecipeError, match="fewer than two pairs"):
        solve(made)
    other.load_state_dict(made.state_dict())
    assert torch.equal(other.encode_images(images.float()), made.encode_images(images.float()))
    assert set_trainable(made, ("image_projection", "text_projection"))


def test_a_recipe_names_it():
    settings = resolve("models.matchers", {"name": "cca", "joint": 2, "power": 2.0}, "model", ModelSettings).for_data(
        9, (6,)
    )
    assert resolve("models.matchers", settings.model_dump(mode="json"), "model", ModelSettings) == settings
    assert settings.build().embedding_dim == 2


@given(st.lists(st.sampled_from([1e-6, 1e-3, 0.02, 1.0, 30.0]), min_size=1, unique=True), st.integers(0, 100))
def test_each_ridge_gives_the_weights_of_a_fit_with_it_alone(ridges, seed):
    images, texts = data(seed=seed)
    swept = matcher(regularisation=ridges)
    for rows in torch.arange(60).split(17):
        swept.accumulate_vectors(images[rows], texts[rows])
    solutions = list(swept.solutions())
    assert [solution.value for solution in solutions] == sorted(ridges)
    for solution in solutions:
        alone = matcher(regularisation=solution.value)
        for rows in torch.arange(60).split(17):
            alone.accumulate_vectors(images[rows], texts[rows])
        solve(alone)
        swept.adopt(solution)
        for name, tensor in swept.state_dict().items():
            assert torch.equal(tensor, alone.state_dict()[name]), name
    if len(ridges) > 1:
        assert not torch.equal(solutions[0].weights["correlations"], solutions[-1].weights["correlations"])


def test_a_ridge_is_a_number_or_a_list_and_the_default_is_a_choice():
    def ridges(**changes):
        return resolve("models.matchers", {"name": "cca", **changes}, "model", ModelSettings).regularisation

    assert ridges(regularisation=0.5) == (0.5,)
    assert ridges(regularisation=[1, 0.5]) == (1, 0.5)
    assert min(ridges()) <= 1e-4
    assert max(ridges()) >= 10
    for wrong, key in ((-1.0, ".1"), ([0.1, -1.0], ".2"), ([], ""), ("big", ".1")):
        with pytest.raises(RecipeError, match=f"^model: regularisation{key} = "):
            ridges(regularisation=wrong)


def test_correlations_agree_with_scikit_learn():
    cross = pytest.importorskip("sklearn.cross_decomposition")
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
