import pytest
import torch

from diptych.errors import DiptychError
from diptych.models.pretrained_pairs.open_clip_networks import build, network_weights


def config(pairs, **changes):
    return {"embed_dim": 16, "vision_cfg": pairs.VISION, "text_cfg": pairs.TEXT, **changes}


def test_projections_are_linear_layers_behind_the_blocks(pairs):
    images, texts = build(config(pairs))
    assert isinstance(images.project, torch.nn.Linear)
    assert list(texts.network._modules)[-1] == "text_projection"
    names = {name for name, _ in images.named_parameters()} | {name for name, _ in texts.named_parameters()}
    assert {"project.weight", "network.text_projection.weight"} <= names
    assert "visual.proj" not in names


@torch.no_grad()
def test_short_texts_need_no_padding(pairs):
    _, texts = build(config(pairs))
    pairs.random_weights(texts)
    ids = torch.tensor([[49406, 320, 49407, 0], [49406, 7, 8, 49407]])
    whole = torch.nn.functional.pad(ids, (0, 20))
    torch.testing.assert_close(texts(ids), texts(whole))
    torch.testing.assert_close(texts(whole), texts.network(whole))


def test_weights_are_those_of_either_form(pairs):
    plain = network_weights(pairs.open_clip_model().state_dict())
    custom = network_weights(pairs.open_clip_model(custom_text=True).state_dict())
    images, texts = build(config(pairs))
    for parts in (plain, custom):
        assert parts["image"].keys() == images.state_dict().keys()
        assert parts["text"].keys() == texts.state_dict().keys()
        assert parts["score"].keys() == {"logit_scale"}


def test_what_is_not_a_weight_of_the_networks_is_left_out_or_noticed():
    nothing = torch.zeros(())
    parts = network_weights({"input_resolution": nothing, "text_decoder.x": nothing, "logit_bias": nothing})
    assert parts == {"image": {}, "text": {}, "score": {"logit_bias": nothing}}
    assert "surprise" in network_weights({"surprise": nothing})["image"]


def test_a_configuration_that_open_clip_cannot_build_is_an_error(pairs):
    with pytest.raises(DiptychError, match="open_clip cannot build the networks of a pair"):
        build(config(pairs, vision_cfg={"magic": 1}))
