"""A pair gives the embeddings of its library, from files alone, and is a matcher like any other."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import diptych
from diptych.data.images import decode
from diptych.errors import RecipeError
from diptych.models.matchers.pair import PairSettings
from diptych.models.tower import Tokens
from diptych.training.make import make
from diptych.training.recipe_loader import load_recipe

KINDS = ("open_clip", "clip", "siglip", "siglip2")


def assert_equal(ours, theirs):
    for own, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-5)
        assert np.ptp(expected, axis=0).max() > 0.02, "all rows are alike, so this test would be vacuous"


@pytest.fixture(scope="module")
def photos(pairs, tmp_path_factory):
    return pairs.photos(tmp_path_factory.mktemp("photos"))


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_are_those_of_the_library(kind, pairs, pair_folder, photos):
    theirs = {"open_clip": pairs.by_open_clip, "siglip2": pairs.by_siglip2}.get(kind, pairs.by_transformers)
    model = diptych.load(pair_folder(kind), "cpu")
    ours = model.encode_images(photos), model.encode_texts(pairs.TEXTS)
    assert_equal(ours, theirs(pair_folder(kind), photos, pairs.TEXTS))
    np.testing.assert_allclose(model.score(photos, pairs.TEXTS), ours[0] @ ours[1].T, atol=1e-6)
    assert model.is_inner_product


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("open_clip", {"interpolation": "bilinear"}),
        ("open_clip", {"rounding": "down"}),
        ("open_clip", {"crop": "whole"}),
        ("clip", {"rounding": "even"}),
        ("siglip", {"interpolation": "bilinear"}),
        ("siglip2", {"interpolation": "bicubic"}),
        ("siglip", {"mean": (0.4, 0.5, 0.5)}),
    ],
)
def test_every_part_of_the_preprocessing_matters(kind, change, pair_folder, photos):
    """Otherwise the comparisons with the libraries would say little."""
    model = diptych.load(pair_folder(kind), "cpu")
    settings = model.matcher.settings
    image = settings.architecture.image.model_copy(update=change)
    architecture = settings.architecture.model_copy(update={"image": image})
    other = settings.model_copy(update={"architecture": architecture}).build()
    other.load_state_dict(model.matcher.state_dict())
    changed = diptych.Model.from_matcher(other.eval(), model.tokeniser).encode_images(photos)
    assert np.abs(changed - model.encode_images(photos)).max() > 1e-4


def test_a_large_photo_is_decoded_in_full(pair_folder, photos):
    model = diptych.load(pair_folder("siglip"), "cpu")
    assert model.engine.decode_size is None
    large, reduced = photos[4], decode(photos[4], 32)
    assert reduced.width < 701
    assert np.abs(model.encode_images([large]) - model.encode_images([reduced])).max() > 1e-4


@pytest.mark.parametrize("batch_size", [1, 2])
def test_embeddings_do_not_depend_on_the_batch(batch_size, pairs, pair_folder, photos):
    for kind in KINDS:
        model = diptych.load(pair_folder(kind), "cpu")
        texts = model.encode_texts(pairs.TEXTS, batch_size=batch_size)
        np.testing.assert_allclose(texts, model.encode_texts(pairs.TEXTS), atol=1e-6)
        images = model.encode_images(photos, batch_size=batch_size)
        np.testing.assert_allclose(images, model.encode_images(photos), atol=1e-6)


def test_logits_have_the_temperature_and_the_bias_of_the_library(pairs, pair_folder, photos):
    matcher = diptych.load(pair_folder("siglip"), "cpu").matcher
    weights = load_file(pair_folder("siglip") / "model.safetensors")
    images, texts = (torch.nn.functional.normalize(torch.randn(count, 32), dim=1) for count in (3, 2))
    expected = images @ texts.t() * weights["logit_scale"].exp() + weights["logit_bias"]
    torch.testing.assert_close(matcher.logits(images, texts), expected)
    assert weights["logit_bias"].item() != 0
    torch.testing.assert_close(matcher.score_pairs(images[:2], texts), matcher.score(images[:2], texts).diagonal())


def test_a_run_of_a_pair_opens_without_the_folder(pairs, pair_folder, photos, tmp_path):
    for kind in KINDS:
        folder = shutil.copytree(pair_folder(kind), tmp_path / kind)
        run = make(load_recipe("pair", [f"model.model={folder}"]), tmp_path / f"{kind}-run")
        expected = diptych.load(folder, "cpu").encode_images(photos[:2])
        shutil.rmtree(folder)
        model = diptych.load(run, "cpu")
        np.testing.assert_array_equal(model.encode_images(photos[:2]), expected)
        assert model.matcher.settings.architecture is not None
        assert not model.matcher.needs_training


def test_a_prompt_is_around_every_text(pair_folder, tmp_path):
    folder = pair_folder("clip")
    run = make(load_recipe("pair", [f"model.model={folder}", "model.prompt=the large {}"]), tmp_path / "run")
    own, plain = diptych.load(run, "cpu"), diptych.load(folder, "cpu")
    np.testing.assert_array_equal(own.encode_texts(["dog"]), plain.encode_texts(["the large dog"]))


def test_stored_features_stand_for_photos_and_texts(pair_folder):
    matcher = diptych.load(pair_folder("open_clip"), "cpu").matcher
    vectors = torch.randn(3, 16)
    unit = torch.nn.functional.normalize(vectors, dim=1)
    torch.testing.assert_close(matcher.encode_images(vectors), unit)
    nothing = torch.zeros(3, 1, dtype=torch.int64)
    torch.testing.assert_close(matcher.encode_texts(Tokens(nothing, nothing[:, 0], vectors)), unit)
    assert matcher.cached_text_tower is matcher.text
    assert matcher.pretrained is matcher.image.backbone


def test_a_pair_needs_photos_and_its_own_tokeniser(pair_folder):
    settings = PairSettings(model=str(pair_folder("clip")))
    with pytest.raises(RecipeError, match="'pair' reads photos through its image tower, and the data has features"):
        settings.for_data(10, (64,))
    with pytest.raises(RecipeError, match=r"its tokeniser has 99 ids and its network 17; they do not belong together"):
        settings.for_data(99, None)
    with pytest.raises(RecipeError, match=r"text\.vectors: the text tower has no word embedding"):
        diptych.load(pair_folder("clip"), "cpu").matcher.load_word_vectors(torch.zeros(1, 1), torch.zeros(1) > 0)


def test_weights_that_no_pair_has_are_refused(pair_folder, tmp_path):
    folder = shutil.copytree(pair_folder("clip"), tmp_path / "clip")
    file = folder / "model.safetensors"
    save_file(load_file(file) | {"classifier.weight": torch.zeros(2)}, file)
    with pytest.raises(RecipeError, match=r"model\.safetensors: has weights classifier\.weight that a pair does not"):
        _ = diptych.load(folder, "cpu").matcher
