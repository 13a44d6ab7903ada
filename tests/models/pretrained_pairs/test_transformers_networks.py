import pytest
import torch

from diptych.errors import DiptychError
from diptych.models.pretrained_pairs.transformers_layout import read_folder
from diptych.models.pretrained_pairs.transformers_networks import build, network_weights
from diptych.models.pretrained_pairs.weights import read_tensors


@pytest.mark.parametrize("kind", ["clip", "siglip", "siglip2"])
def test_the_networks_have_the_weights_of_the_file(kind, pair_folder):
    source = read_folder(pair_folder(kind), "")
    images, texts = build(source.architecture.config)
    parts = network_weights(read_tensors(source.weights))
    assert parts["image"].keys() == images.state_dict().keys()
    assert parts["text"].keys() == texts.state_dict().keys()
    assert parts["score"].keys() == ({"logit_scale"} if kind == "clip" else {"logit_scale", "logit_bias"})


def test_positions_that_older_versions_stored_are_left_out():
    parts = network_weights({"text_model.embeddings.position_ids": torch.arange(3)})
    assert parts == {"image": {}, "text": {}, "score": {}}


def test_networks_can_be_built_on_the_meta_device(pair_folder):
    with torch.device("meta"):
        images, _ = build(read_folder(pair_folder("siglip"), "").architecture.config)
    assert next(images.parameters()).is_meta


def test_a_broken_installation_is_named_with_its_first_cause(pair_folder, monkeypatch):
    config = read_folder(pair_folder("clip"), "").architecture.config

    def fail(*_):
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as cause:
            raise ModuleNotFoundError("Could not import module 'CLIPModel'.") from cause

    monkeypatch.setattr("transformers.AutoModel.from_config", fail)
    with pytest.raises(DiptychError, match=r"\(RuntimeError: operator torchvision::nms .*\); install the torchvision"):
        build(config)


def test_a_configuration_that_transformers_cannot_build_is_an_error(pair_folder):
    config = read_folder(pair_folder("clip"), "").architecture.config
    with pytest.raises(DiptychError, match="transformers cannot build the networks of a pair"):
        build({**config, "text_config": {**config["text_config"], "hidden_act": "magic"}})
