import pytest
import torch
from torch.nn.functional import normalize

from diptych import registry
from diptych.errors import RecipeError
from diptych.models.layers.word_states import WordSettings
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.tower import Tokens
from diptych.models.towers.region.features import RegionFeatureSettings

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))


def scan(**changes):
    torch.manual_seed(0)
    image = RegionFeatureSettings(shape=(4, 6))
    return SCANSettings(joint=5, image=image, text=WordSettings(word=3), words=9, **changes).build()


def regions():
    torch.manual_seed(1)
    images = torch.randn(2, 4, 6)
    images[1, 2:] = 0
    return images


def test_regions_are_projected_and_missing_ones_stay_zero():
    matcher = scan()
    torch.nn.init.ones_(matcher.project.bias)
    encoded = matcher.encode_images(regions())
    torch.testing.assert_close(encoded[0], normalize(matcher.project(regions()[0]), dim=1))
    torch.testing.assert_close(encoded[1, :2], normalize(matcher.project(regions()[1, :2]), dim=1))
    assert (encoded[1, 2:] == 0).all()


def test_a_text_read_forwards_and_backwards_is_worth_its_words():
    matcher = scan(smooth=9.0, lse=6.0)
    images, texts = matcher.encode_images(regions()), matcher.encode_texts(TOKENS)
    image, text = images[1, :2], texts[1, :3]
    raw = torch.nn.functional.leaky_relu(text @ image.t(), 0.1)  # (words, regions)
    weights = (9 * raw / raw.norm(dim=0)).softmax(1)
    cosines = torch.cosine_similarity(text, weights @ image)
    expected = (6 * cosines).exp().sum().log() / 6
    torch.testing.assert_close(matcher.score(images, texts)[1, 1], expected)
    torch.testing.assert_close(matcher.score_pairs(images, texts)[1], expected)
    torch.testing.assert_close(matcher.attention(images[1], texts[1])[:3, :2], weights)


def test_the_other_direction_lets_regions_attend():
    matcher = scan(direction="i2t", smooth=4.0, pool="mean")
    images, texts = matcher.encode_images(regions()), matcher.encode_texts(TOKENS)
    image, text = images[1, :2], texts[1, :3]
    raw = torch.nn.functional.leaky_relu(image @ text.t(), 0.1)  # (regions, words)
    weights = (4 * raw / raw.norm(dim=0)).softmax(1)
    expected = torch.cosine_similarity(image, weights @ text).mean()
    torch.testing.assert_close(matcher.score(images, texts)[1, 1], expected)
    torch.testing.assert_close(matcher.score_pairs(images, texts)[1], expected)
    torch.testing.assert_close(matcher.attention(images[1], texts[1])[:3, :2], weights.t())


def test_everything_is_trained():
    matcher = scan()
    matcher.score(matcher.encode_images(regions()), matcher.encode_texts(TOKENS)).sum().backward()
    for name, parameter in matcher.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
    assert {name.split(".")[0] for name, _ in matcher.named_parameters()} == {"project", "text"}


def test_it_is_an_interaction_model_that_starts_as_the_originals():
    matcher = scan()
    assert matcher.embedding_dim is None
    assert matcher.image_input.shape == (4, 6)
    assert matcher.pretrained is None
    assert (matcher.project.bias == 0).all()
    assert matcher.project.weight.abs().max() <= (6 / (6 + 5)) ** 0.5
    assert SCANSettings().joint == 1024
    assert SCANSettings().text.word == 300


def test_a_recipe_names_it_and_its_settings():
    table = {"name": "scan", "direction": "i2t", "image": {"name": "features"}, "text": {"word": 5}}
    found = registry.resolve("models.matchers", table, "model", ModelSettings).for_data(7, (36, 2048))
    assert found.image.shape == (36, 2048)
    assert (found.words, found.text.word, found.direction) == (7, 5, "i2t")


@pytest.mark.parametrize("wrong", [{"direction": "both"}, {"norm": "l3"}, {"smooth": 0.0}, {"pool": "median"}], ids=str)
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(RecipeError):
        SCANSettings(**wrong)


def test_word_vectors_reach_the_words():
    matcher = scan()
    matcher.load_word_vectors(torch.full((9, 3), 7.0), torch.tensor([True] * 9))
    assert (matcher.text.words.weight == 7).all()
