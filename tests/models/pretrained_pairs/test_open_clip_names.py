import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import diptych
from diptych.errors import DiptychError, RecipeError
from diptych.models.pretrained_pairs import hub, open_clip_names


@pytest.fixture
def tiny(pairs, pair_folder, monkeypatch, tmp_path):
    """open_clip knows the small model as `tiny`, and tags of it; the cache of the hub is empty."""
    factory, published = pairs.open_clip.factory, pairs.open_clip.pretrained
    config = {"embed_dim": 16, "vision_cfg": pairs.VISION, "text_cfg": pairs.TEXT}
    monkeypatch.setitem(factory._MODEL_CONFIGS, "tiny", json.loads(json.dumps(config)))
    folder = pair_folder("open_clip")
    pre = {key: pairs.PREPROCESSING[key] for key in ("mean", "std", "interpolation", "resize_mode")}
    torch.save({"weight": torch.zeros(1)}, tmp_path / "old.pt")
    tags = {
        "here": {"file": str(folder / "open_clip_model.safetensors"), **pre},
        "quick": {"file": str(folder / "open_clip_model.safetensors"), "quick_gelu": True, **pre},
        "hub": {"hf_hub": "some/tiny/", **pre},
        "old": {"file": str(tmp_path / "old.pt")},
        "link": {"url": "https://example.org/tiny.pt"},
    }
    monkeypatch.setitem(published._PRETRAINED, "tiny", tags)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "hub_file", lambda *_: None)
    return folder


@pytest.mark.parametrize("rest", ["here", "FOLDER"])
def test_a_tag_and_a_folder_give_the_same(rest, tiny, pairs, tmp_path):
    address = f"open_clip:tiny/{tiny if rest == 'FOLDER' else rest}"
    photos = pairs.photos(tmp_path / "photos")
    model = diptych.load(address, "cpu")
    np.testing.assert_allclose(model.encode_images(photos), pairs.by_open_clip(tiny, photos, ["a"])[0], atol=1e-5)
    assert model.address == address
    assert diptych.load(tiny, "cpu").identity == model.identity


def test_a_tag_brings_the_activation_that_it_was_trained_with(tiny):
    assert open_clip_names.find("open_clip:tiny/quick").architecture.config["quick_gelu"] is True
    assert open_clip_names.find("open_clip:tiny/here").architecture.config["quick_gelu"] is False


def test_weights_without_a_configuration_are_read_as_the_published_ones(tiny, pairs, tmp_path):
    (tmp_path / "bare").mkdir()
    shutil.copy(tiny / "open_clip_model.safetensors", tmp_path / "bare" / "mine.safetensors")
    found = open_clip_names.find(f"open_clip:tiny/{tmp_path / 'bare'}")
    assert found.architecture.image.mean == tuple(pairs.PREPROCESSING["mean"])
    collapsed = f"open_clip:tiny{tmp_path / 'bare'}"  # as a path would write NAME//tmp/bare
    assert open_clip_names.find(collapsed).architecture == found.architecture


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("open_clip:tinny/here", "open_clip has no model 'tinny'; did you mean 'tiny'?"),
        ("open_clip:tiny/hre", "'hre' is neither a folder with weights nor a tag of tiny; did you mean 'here'?"),
        ("open_clip:tiny", "'nothing' is neither a folder with weights nor a tag of tiny; known: "),
        ("open_clip:tiny/link", r"published only as a pickle \(https://example.org/tiny.pt\); download and convert it"),
        ("open_clip:tiny/old", r"old\.pt: a pickled checkpoint can run code when it is opened and is refused; convert"),
    ],
)
def test_an_address_that_names_nothing_usable_is_refused(address, message, tiny):
    with pytest.raises(RecipeError, match=message.replace("?", r"\?")):
        open_clip_names.find(address)


def test_published_weights_come_from_the_cache(tiny, monkeypatch, tmp_path):
    with pytest.raises(
        DiptychError, match=r"the open_clip_model\.safetensors of some/tiny is not in the cache \(.*/hub"
    ):
        open_clip_names.find("open_clip:tiny/hub")
    cached = {("some/tiny", "open_clip_model.safetensors"): tiny / "open_clip_model.safetensors"}
    monkeypatch.setattr(hub, "hub_file", lambda address, repository, name: cached.get((repository, name)))
    assert open_clip_names.find("open_clip:tiny/hub").weights == (tiny / "open_clip_model.safetensors",)
    cached = {("some/tiny", "open_clip_pytorch_model.bin"): tmp_path / "old.pt"}
    with pytest.raises(RecipeError, match=r"old\.pt: a pickled checkpoint .* tiny-hub/open_clip_model\.safetensors"):
        open_clip_names.find("open_clip:tiny/hub")


def test_the_tokenizer_of_published_weights_comes_from_the_cache_too(tiny, pairs, monkeypatch, tmp_path):
    text = {
        **pairs.TEXT,
        "hf_tokenizer_name": "some/words",
        "vocab_size": 40,
        "no_causal_mask": True,
        "pool_type": "last",
    }
    config = {"embed_dim": 16, "vision_cfg": pairs.VISION, "text_cfg": text, "custom_text": True}
    monkeypatch.setitem(pairs.open_clip.factory._MODEL_CONFIGS, "tiny", config)
    with pytest.raises(DiptychError, match=r"the tokenizer\.json of some/words is not in the cache"):
        open_clip_names.find("open_clip:tiny/here")
    pairs.siglip_tokenizer().save_pretrained(tmp_path / "words")
    monkeypatch.setattr(hub, "hub_file", lambda address, repository, name: tmp_path / "words" / name)
    found = open_clip_names.find("open_clip:tiny/here")
    assert found.tokeniser().tokens("a dog") == ["a", "dog", "</s>"]
    assert found.architecture.text.fill == 0


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "open_clip", None)
    with pytest.raises(DiptychError, match=r"open_clip.*pip install 'diptych\[open-clip\]'"):
        diptych.load("open_clip:ViT-B-32/openai")


def test_weights_in_half_precision_are_read(tiny, tmp_path):
    (tmp_path / "half").mkdir()
    weights = {name: tensor.half() for name, tensor in load_file(tiny / "open_clip_model.safetensors").items()}
    save_file(weights, tmp_path / "half" / "open_clip_model.safetensors")
    half, whole = (diptych.load(f"open_clip:tiny/{folder}", "cpu") for folder in (tmp_path / "half", tiny))
    assert next(half.matcher.parameters()).dtype == torch.float32
    np.testing.assert_allclose(half.encode_texts(["a dog"]), whole.encode_texts(["a dog"]), atol=0.02)
