import pytest
import torch

from diptych import registry
from diptych.models.layers.word_states import WordSettings
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.bfan import BFANSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.tower import Tokens
from diptych.models.towers.region.features import RegionFeatureSettings

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))
SIZES = {"joint": 5, "image": RegionFeatureSettings(shape=(4, 6)), "text": WordSettings(word=3), "words": 9}


def encoded(focal):
    torch.manual_seed(0)
    matcher = BFANSettings(focal=focal, **SIZES).build()
    images = torch.randn(2, 4, 6)
    images[1, 3:] = 0
    return matcher, matcher.encode_images(images), matcher.encode_texts(TOKENS)


def focused_mean(focal, queries, context):
    raw = torch.nn.functional.leaky_relu(queries @ context.t(), 0.1)  # (queries, context)
    weights = (20 * raw / raw.norm(dim=0)).softmax(1)
    confidence = torch.ones_like(weights) if focal == "equal" else weights.sqrt()
    over = ((weights[:, :, None] - weights[:, None]) * confidence[:, None]).sum(2)
    weights = weights * (over > 0)
    return torch.cosine_similarity(queries, (weights / weights.sum(1, keepdim=True)) @ context).mean()


@pytest.mark.parametrize("focal", ["equal", "prob"])
def test_both_directions_are_focused_and_added(focal):
    matcher, images, texts = encoded(focal)
    image, text = images[1, :3], texts[1, :3]
    expected = focused_mean(focal, text, image) + focused_mean(focal, image, text)
    torch.testing.assert_close(matcher.score(images, texts)[1, 1], expected)
    torch.testing.assert_close(matcher.score_pairs(images, texts)[1], expected)


def test_the_focus_matters():
    matcher, images, texts = encoded("equal")
    whole = SCANSettings(smooth=20.0, pool="mean", **SIZES).build()
    back = SCANSettings(smooth=20.0, pool="mean", direction="i2t", **SIZES).build()
    unfocused = whole.score(images, texts) + back.score(images, texts)
    assert not torch.allclose(matcher.score(images, texts), unfocused)


def test_everything_is_trained():
    matcher, images, texts = encoded("prob")
    matcher.score(images, texts).sum().backward()
    for name, parameter in matcher.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def test_a_recipe_names_it():
    found = registry.resolve("models.matchers", {"name": "bfan", "focal": "prob"}, "model", ModelSettings)
    assert (found.focal, found.smooth) == ("prob", 20)
