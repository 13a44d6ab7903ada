import pytest
import torch

from diptych.errors import RecipeError
from diptych.models.matchers.projected import Head, Projected
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings

TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), torch.tensor([4, 3]))


def network(**changes):
    torch.manual_seed(0)
    towers = {"image": FeatureSettings(shape=(6,)), "text": GRUSettings(hidden=4, word=3), "words": 9}
    layers = {"image_layers": (7, 5), "text_layers": (5,)}
    return TwoBranchSettings(**{**towers, **layers, **changes}).build().eval()


def test_each_side_goes_through_its_tower_and_its_branch():
    matcher, images = network(), torch.randn(3, 6)
    torch.testing.assert_close(matcher.encode_images(images), matcher.image_branch(images))
    torch.testing.assert_close(matcher.encode_texts(TOKENS), matcher.text_branch(matcher.text(TOKENS)))
    assert matcher.encode_images(images).norm(dim=1).tolist() == pytest.approx([1] * 3)
    assert matcher.encode_texts(TOKENS).shape == (2, 5)


def test_a_stage_can_name_its_parts():
    names = {name.split(".")[0] for name, _ in network().named_parameters()}
    assert names == {"image_branch", "text", "text_branch"}


def test_both_sides_must_end_in_the_joint_size():
    with pytest.raises(RecipeError, match=r"model\.image_layers ends in 5 and model\.text_layers in 4"):
        network(text_layers=(4,))


def test_the_defaults_are_those_of_the_paper():
    settings = TwoBranchSettings()
    assert (settings.image_layers, settings.text_layers) == ((2048, 512), (2048, 512))
    assert (settings.dropout, settings.batch_norm) == (0.5, True)


def test_both_branches_standardise_what_the_towers_end_in():
    matcher, images = network(standardise=True), torch.randn(3, 6)
    assert network().standardised_images is None
    assert network().standardised_texts is None
    for found, branch, tower in (
        (matcher.standardised_images, matcher.image_branch, matcher.image),
        (matcher.standardised_texts, matcher.text_branch, matcher.text),
    ):
        assert found.layer is branch.standardise
        assert found.encode is tower
    projected = Projected(matcher, Head())
    assert projected.standardised_images == matcher.standardised_images
    assert projected.standardised_texts == matcher.standardised_texts
    for branch, tower in ((matcher.image_branch, matcher.image), (matcher.text_branch, matcher.text)):
        branch.standardise.measured(torch.randn(tower.size), torch.rand(tower.size) + 0.5)
    plain = network()
    plain.load_state_dict({key: value for key, value in matcher.state_dict().items() if "standardise" not in key})
    scaled = matcher.image_branch.standardise(images)
    torch.testing.assert_close(matcher.encode_images(images), plain.encode_images(scaled))
    scaled = matcher.text_branch.standardise(matcher.text(TOKENS))
    torch.testing.assert_close(matcher.encode_texts(TOKENS), plain.text_branch(scaled))


def test_the_vectors_of_an_image_tower_that_standardises_are_found_if_the_branches_do_not():
    matcher = network(image=BackboneSettings(standardise=True), image_layers=(5,))
    assert matcher.standardised_images.layer is matcher.image.standardise
    assert Projected(matcher, Head()).standardised_images.layer is matcher.image.standardise
    both = network(image=BackboneSettings(standardise=True), image_layers=(5,), standardise=True)
    assert both.standardised_images.layer is both.image_branch.standardise
