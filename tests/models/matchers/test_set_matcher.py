"""What SCAN and BFAN share; their scores are tested with each of them."""

import pytest
import torch
from torch.nn.functional import normalize

from diptych.models.layers.attention import Attention
from diptych.models.layers.word_states import WordSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.set_matcher import SetMatcher
from diptych.models.tower import Tokens
from diptych.models.towers.region.features import RegionFeatureSettings

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))
SETTINGS = SCANSettings(joint=5, image=RegionFeatureSettings(shape=(4, 6)), text=WordSettings(word=3), words=9)


def matcher(*directions):
    torch.manual_seed(0)
    return SetMatcher(SETTINGS, Attention(), *directions)


def encodings(model):
    torch.manual_seed(1)
    images = torch.randn(2, 4, 6)
    images[1, 2:] = 0
    return model.encode_images(images), model.encode_texts(TOKENS)


def test_regions_and_words_are_unit_vectors_and_missing_ones_are_zeros():
    model = matcher("t2i")
    torch.nn.init.ones_(model.project.bias)
    images, texts = encodings(model)
    assert images.norm(dim=2).tolist() == [pytest.approx([1, 1, 1, 1]), pytest.approx([1, 1, 0, 0])]
    assert texts.norm(dim=2).tolist() == [pytest.approx([1, 1, 1, 1]), pytest.approx([1, 1, 1, 0])]
    torch.manual_seed(1)
    first = torch.randn(2, 4, 6)[0]
    torch.testing.assert_close(images[0], normalize(model.project(first), dim=1))


def test_dropout_is_of_regions_and_words_in_training_only():
    torch.manual_seed(0)
    dropping = SETTINGS.model_copy(update={"dropout": 0.5, "text": WordSettings(word=3, dropout=0.5)}).build()
    plain = matcher("t2i").eval()
    plain.load_state_dict(dropping.state_dict())
    for encoded, other in zip(encodings(dropping.eval()), encodings(plain), strict=True):
        assert torch.equal(encoded, other)
    images, texts = encodings(dropping.train())
    others = encodings(plain)
    assert not torch.allclose(images, others[0])
    assert not torch.allclose(texts, others[1])
    assert (images[1, 2:] == 0).all()
    # All entries of a region may be dropped: it is then what the bias makes of it.
    assert images.isfinite().all()


def test_a_dropped_region_is_the_projection_of_its_other_entries():
    model = SETTINGS.model_copy(update={"dropout": 0.25}).build().train()
    torch.manual_seed(1)
    regions = torch.randn(2, 4, 6)
    torch.manual_seed(7)
    found = model.encode_images(regions)
    torch.manual_seed(7)
    kept = torch.nn.functional.dropout(torch.ones(2, 4, 6), 0.25)  # 0 or 4/3
    torch.testing.assert_close(found, normalize(model.project(regions * kept), dim=2))


def test_the_scores_of_two_directions_are_added():
    both = matcher("t2i", "i2t")
    images, texts = encodings(both)
    expected = matcher("t2i").score(images, texts) + matcher("i2t").score(images, texts)
    torch.testing.assert_close(both.score(images, texts), expected)
    torch.testing.assert_close(both.score_pairs(images, texts), expected.diagonal())


@pytest.mark.parametrize(
    ("directions", "direction"),
    [(("t2i",), "t2i"), (("i2t",), "i2t"), (("t2i", "i2t"), "t2i"), (("i2t", "t2i"), "t2i")],
)
def test_attention_is_words_by_regions_whoever_attends(directions, direction):
    model = matcher(*directions)
    images, texts = encodings(model)
    weights = model.attention(images[1], texts[1])
    assert model.attention_direction == direction
    assert weights.shape == (4, 4)
    sums = weights.sum(1 if direction == "t2i" else 0)
    attending = 3 if direction == "t2i" else 2
    assert sums.tolist() == pytest.approx([1] * attending + [0] * (4 - attending))
