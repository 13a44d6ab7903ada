"""A model on the encodings of its base: the same encodings, scores and gradients as from images and texts."""

import pytest
import torch

from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.vse import VSESettings
from diptych.models.on_base import OnBase
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))
BASE = VSESettings(joint=6, text=GRUSettings(hidden=6, word=3), image=FeatureSettings(shape=(6,)), words=9)


@pytest.fixture(
    params=[{"residual": True}, {"output": 3}, {"output": 3, "normalise_input": False}],
    ids=["residual", "plain", "before normalisation"],
)
def matcher(request):
    torch.manual_seed(0)
    made = Projected(BASE.build(), Head(hidden=8, **request.param)).eval()
    torch.nn.init.normal_(made.head_images[2].weight)  # a residual head starts at zero
    return made


def test_it_encodes_and_scores_as_the_model_does(matcher):
    images = torch.randn(4, 6)  # of the same size as the base's vectors: nothing could tell them apart
    on_base, vectors = OnBase(matcher), matcher.base_model.encode_images(images)
    tokens = Tokens(TOKENS.ids, TOKENS.lengths, matcher.base_model.encode_texts(TOKENS))
    ours = on_base.encode_batch(vectors, tokens, torch.arange(2))
    expected = matcher.encode_batch(images, TOKENS, torch.arange(2))
    torch.testing.assert_close(ours.images, expected.images)
    torch.testing.assert_close(ours.texts, expected.texts)
    assert not torch.allclose(matcher.encode_images(vectors), expected.images)
    torch.testing.assert_close(on_base.score(ours.images, ours.texts), matcher.score(ours.images, ours.texts))
    torch.testing.assert_close(
        on_base.score_pairs(ours.images[:2], ours.texts), matcher.score_pairs(ours.images[:2], ours.texts)
    )


def test_it_declares_what_the_model_declares(matcher):
    on_base = OnBase(matcher)
    for capability in ("settings", "embedding_dim", "is_inner_product", "compares_within_modality", "extra_terms"):
        assert getattr(on_base, capability) == getattr(matcher, capability)
    assert on_base.image_input.shape == (6,)
    assert on_base.pretrained is None


def test_it_trains_the_weights_of_the_model(matcher):
    on_base = OnBase(matcher)
    assert {id(each) for each in on_base.parameters()} == {id(each) for each in matcher.parameters()}
    on_base.encode_images(torch.randn(4, 6)).sum().backward()
    assert matcher.head_images[0].weight.grad.any()
    assert all(parameter.grad is None for parameter in matcher.base.parameters())
