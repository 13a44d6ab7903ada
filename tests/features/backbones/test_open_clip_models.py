import json

import pytest
import torch
from safetensors.torch import save_file

from diptych.errors import DiptychError, RecipeError
from diptych.features.backbones import open_clip_models

TEXT = {"context_length": 4, "vocab_size": 16, "width": 16, "heads": 2, "layers": 1}
TRANSFORMER = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
RESNET = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16, "patch_size": None}
TIMM = {"image_size": 160, "timm_model_name": "test_vit", "timm_pool": "token", "timm_proj": "linear"}
QUERIES = {**TRANSFORMER, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
TOWERS = {"transformer": TRANSFORMER, "resnet": RESNET, "timm": TIMM, "queries": QUERIES}
MEAN, DEVIATION = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


@pytest.fixture(scope="module")
def towers(open_clip, tmp_path_factory):
    """open_clip knows four tiny models; each has the weights `mine`, in a file, trained with the approximate GELU."""
    models, folder = {}, tmp_path_factory.mktemp("towers")
    with pytest.MonkeyPatch.context() as patch:
        for name, vision in TOWERS.items():
            config = {"embed_dim": 24, "vision_cfg": vision, "text_cfg": TEXT}
            patch.setitem(open_clip.factory._MODEL_CONFIGS, f"tiny-{name}", config)
            torch.manual_seed(5)
            model = open_clip.CLIP(**json.loads(json.dumps(config)), quick_gelu=True).eval()
            for parameter in model.parameters():
                torch.nn.init.uniform_(parameter, -0.2, 0.2)
            file = folder / f"{name}.safetensors"
            save_file(model.state_dict(), file)
            tag = {"file": str(file), "mean": MEAN, "std": DEVIATION, "quick_gelu": True}
            patch.setitem(open_clip.pretrained._PRETRAINED, f"tiny-{name}", {"mine": tag})
            models[name] = (model.visual, file)
        yield models


def normalised(pixels):
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return (pixels.float() / 255 - mean) / deviation


@pytest.mark.parametrize("tower", sorted(TOWERS))
@pytest.mark.parametrize("tag", ["", "/mine"])
@torch.no_grad()
def test_features_equal_the_vector_of_the_tower(tower, tag, towers, bytes_of, capfd):
    visual, file = towers[tower]
    name = f"open-clip:tiny-{tower}{tag}"
    pixels = bytes_of(TOWERS[tower]["image_size"])
    expected = visual(normalised(pixels))
    expected = expected[0] if isinstance(expected, tuple) else expected
    for backbone in (open_clip_models.load(name), open_clip_models.load(name, file)):
        backbone.eval()
        assert (backbone.name, backbone.side, backbone.size) == (name, pixels.shape[-1], 24)
        torch.testing.assert_close(backbone(pixels), expected, rtol=1e-4, atol=1e-5)
    assert capfd.readouterr() == ("", "")


@torch.no_grad()
def test_regions_are_the_patches_or_the_last_map(towers, bytes_of, monkeypatch):
    pixels = bytes_of(32)
    visual, _ = towers["transformer"]
    monkeypatch.setattr(visual, "output_tokens", True)
    _, tokens = visual(normalised(pixels))
    backbone = open_clip_models.load("open-clip:tiny-transformer").eval()
    torch.testing.assert_close(backbone.regions(pixels), tokens, rtol=1e-4, atol=1e-5)
    assert backbone.grid == (16, 32)

    pixels = bytes_of(64)
    visual, _ = towers["resnet"]
    seen = []
    hook = visual.layer4.register_forward_hook(lambda module, inputs, output: seen.append(output))
    visual(normalised(pixels))
    hook.remove()
    backbone = open_clip_models.load("open-clip:tiny-resnet").eval()
    torch.testing.assert_close(backbone.regions(pixels), seen[0].flatten(2).transpose(1, 2), rtol=1e-4, atol=1e-5)
    assert backbone.grid == (4, 256)

    pixels = bytes_of(160)
    visual, _ = towers["timm"]
    tokens = visual.trunk.forward_features(normalised(pixels))
    backbone = open_clip_models.load("open-clip:tiny-timm").eval()
    torch.testing.assert_close(backbone.regions(pixels), tokens[:, 1:], rtol=1e-4, atol=1e-5)


def test_a_tower_that_pools_by_attention_has_no_regions(towers, bytes_of):
    backbone = open_clip_models.build("open-clip:tiny-queries")
    assert backbone.grid == (0, 0)
    with pytest.raises(RecipeError, match="'open-clip:tiny-queries': its image tower has no grid"):
        backbone.regions(bytes_of(32))


@pytest.mark.usefixtures("open_clip")
@pytest.mark.parametrize(("name", "size", "cells"), [("ViT-B-32", 512, (49, 768)), ("RN50", 1024, (49, 2048))])
def test_real_architectures_are_built_on_the_meta_device(name, size, cells):
    with torch.device("meta"):
        backbone = open_clip_models.build(f"open-clip:{name}").eval()
        pixels = torch.empty(2, 3, 224, 224, dtype=torch.uint8)
        assert backbone(pixels).shape == (2, size) == (2, backbone.size)
        assert backbone.regions(pixels).shape == (2, *cells) == (2, *backbone.grid)
    assert not any("text" in part for part, _ in backbone.named_parameters())


@pytest.mark.usefixtures("open_clip")
@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("open-clip:ViT-B-23", "open-clip:ViT-B-32"),
        ("open-clip:ViT-B-32/openia", "open-clip:ViT-B-32/openai"),
        ("open-clip:ViT-S-32/openai", "open-clip:ViT-S-32"),
    ],
)
def test_an_unknown_name_is_offered_the_nearest(name, offer):
    for make in (open_clip_models.build, open_clip_models.load):
        with pytest.raises(RecipeError, match=f"backbone '{name}': no such name; did you mean '{offer}'"):
            make(name)


def test_an_architecture_without_weights_needs_a_file(open_clip):
    with pytest.raises(
        RecipeError, match="'open-clip:ViT-S-32': open_clip has no weights for it; give a safetensors file"
    ):
        open_clip_models.load("open-clip:ViT-S-32")


def test_a_hub_that_cannot_be_reached_is_one_line(towers, open_clip, monkeypatch):
    def unreachable(*arguments, **options):
        raise OSError("the hub\ncannot be reached")

    monkeypatch.setattr(open_clip, "create_model", unreachable)
    with pytest.raises(DiptychError, match=r"the hub cannot be reached.*safetensors file, or use lite0$"):
        open_clip_models.load("open-clip:tiny-resnet")


def test_a_file_that_does_not_fit_is_one_line(towers):
    _, file = towers["resnet"]
    with pytest.raises(DiptychError, match="does not fit the backbone 'open-clip:tiny-transformer'") as error:
        open_clip_models.load("open-clip:tiny-transformer", file)
    assert "\n" not in str(error.value)


@torch.no_grad()
def test_a_file_may_hold_only_the_image_tower(towers, bytes_of, tmp_path):
    visual, whole = towers["transformer"]
    save_file(visual.state_dict(), tmp_path / "tower.safetensors")
    pixels = bytes_of(32)
    alone = open_clip_models.load("open-clip:tiny-transformer", tmp_path / "tower.safetensors").eval()
    torch.testing.assert_close(alone(pixels), open_clip_models.load("open-clip:tiny-transformer", whole).eval()(pixels))
