import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import diptych
from diptych.errors import RecipeError
from diptych.models.pretrained_pairs.clip_layout import read_folder

VISION = {"image_size": 32, "layers": 2, "width": 64, "head_width": 64, "patch_size": 8}
RESNET = {"image_size": 64, "layers": [1, 2, 1, 1], "width": 8, "head_width": 64}
TEXT = {"context_length": 24, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 2}


@pytest.mark.parametrize("vision", [VISION, RESNET], ids=["transformer", "resnet"])
def test_the_shapes_of_the_weights_say_everything(vision, pairs, tmp_path):
    config = {"vision_cfg": vision, "text_cfg": TEXT, "quick_gelu": True}
    size = {"size": [vision["image_size"]] * 2, "mean": None, "std": None}
    described = pairs.open_clip_folder(tmp_path / "described", size, **config)
    (tmp_path / "bare").mkdir()
    weights = load_file(described / "open_clip_model.safetensors")
    # CLIP's own files also have these numbers, and most of their weights are in half precision.
    numbers = {name: torch.tensor(1) for name in ("input_resolution", "context_length", "vocab_size")}
    save_file(weights | numbers, tmp_path / "bare" / "ViT.safetensors")
    photos = pairs.photos(tmp_path / "photos")
    theirs = pairs.by_open_clip(described, photos, pairs.TEXTS)
    model = diptych.load(tmp_path / "bare", "cpu")
    for ours, expected in zip((model.encode_images(photos), model.encode_texts(pairs.TEXTS)), theirs, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_weights_of_something_else_are_refused(tmp_path):
    save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(
        RecipeError,
        match=r"has neither an open_clip_config\.json nor a config\.json, and its weights are not CLIP's \(no pos",
    ):
        read_folder(tmp_path, "")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(RecipeError, match="damaged or truncated"):
        read_folder(tmp_path, "")
