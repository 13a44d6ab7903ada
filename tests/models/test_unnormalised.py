"""A base without the normalisation at its end: its vectors, what it declares, and its weights."""

import pytest
import torch
from torch.nn.functional import normalize

from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.matchers.projected import Head, ProjectedSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.matchers.vsrn import VSRNSettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.unnormalised import Unnormalised

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))
TEXT = {"text": GRUSettings(hidden=5, word=3), "words": 9}
VSE = VSESettings(joint=5, image=FeatureSettings(shape=(6,)), **TEXT)
MODELS = {
    "vse": VSE,
    "projected": ProjectedSettings(base=VSE, head=Head(hidden=4, output=5)),
    "dual_path": DualPathSettings(joint=5, hidden=4, image=FeatureSettings(shape=(6,)), **TEXT),
    "vsrn": VSRNSettings(joint=5, image=RegionFeatureSettings(shape=(3, 6)), **TEXT),
}


@pytest.fixture(params=MODELS)
def matcher(request):
    torch.manual_seed(0)
    return MODELS[request.param].build().eval()


def test_its_vectors_are_those_of_the_matcher_before_they_get_length_one(matcher):
    images, unnormalised = torch.randn(4, *matcher.image_input.shape), Unnormalised(matcher)
    vectors, expected = unnormalised.encode_images(images), matcher.encode_images(images)
    torch.testing.assert_close(normalize(vectors, dim=1), expected)
    assert not torch.allclose(vectors.norm(dim=1), torch.ones(4), atol=0.01)
    vectors, expected = unnormalised.encode_texts(TOKENS), matcher.encode_texts(TOKENS)
    torch.testing.assert_close(normalize(vectors, dim=1), expected)
    assert not torch.allclose(vectors.norm(dim=1), torch.ones(2), atol=0.01)


def test_it_declares_what_the_matcher_declares_and_trains_its_weights(matcher):
    unnormalised = Unnormalised(matcher)
    for capability in ("settings", "embedding_dim", "image_input", "pretrained"):
        assert getattr(unnormalised, capability) == getattr(matcher, capability)
    assert {id(each) for each in unnormalised.parameters()} == {id(each) for each in matcher.parameters()}


def test_it_has_no_score(matcher):
    with pytest.raises(NotImplementedError, match="only heads"):
        Unnormalised(matcher).score(torch.zeros(1, 5), torch.zeros(1, 5))
