"""Pairs as OpenAI's CLIP names their weights: a safetensors file without a configuration, whose shapes say everything.

The file is what the command that refuses a `ViT-B-32.pt` of CLIP writes. Its networks are those of open_clip.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diptych.errors import RecipeError
from diptych.models.pretrained_pairs.open_clip_layout import described
from diptych.models.pretrained_pairs.source import PairSource
from diptych.models.pretrained_pairs.weights import weights_files

Shapes = Mapping[str, tuple[int, ...]]

_HEAD = 64  # the size of every attention head


def read_folder(folder: Path, address: str) -> PairSource:
    """The pair in a folder whose only file of interest are CLIP's weights."""
    weights = weights_files(folder)
    shapes = _shapes(weights)
    try:
        model = _configuration(shapes)
    except KeyError as missing:
        raise RecipeError(
            f"{folder}: has neither an open_clip_config.json nor a config.json, and its weights are not CLIP's (no "
            f"{missing.args[0]}); copy the configuration beside the weights"
        ) from None
    return described(address, model, {}, weights, None)


def _shapes(files: tuple[Path, ...]) -> dict[str, tuple[int, ...]]:
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            with safe_open(file, "np") as opened:
                shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as reason:
            raise RecipeError(f"{file}: damaged or truncated ({reason}); copy it again") from None
    return shapes


def _configuration(shapes: Shapes) -> dict[str, Any]:
    """The configuration that weights of these shapes have in open_clip."""
    context, width = shapes["positional_embedding"]
    return {
        "embed_dim": shapes["text_projection"][1],
        "quick_gelu": True,
        "vision_cfg": _transformer(shapes) if "visual.proj" in shapes else _resnet(shapes),
        "text_cfg": {
            "context_length": context,
            "vocab_size": shapes["token_embedding.weight"][0],
            "width": width,
            "heads": width // _HEAD,
            "layers": _count(shapes, "transformer.resblocks."),
        },
    }


def _transformer(shapes: Shapes) -> dict[str, Any]:
    width, _, patch, _ = shapes["visual.conv1.weight"]
    grid = round((shapes["visual.positional_embedding"][0] - 1) ** 0.5)
    layers = _count(shapes, "visual.transformer.resblocks.")
    return {"layers": layers, "width": width, "patch_size": patch, "image_size": grid * patch, "head_width": _HEAD}


def _resnet(shapes: Shapes) -> dict[str, Any]:
    grid = round((shapes["visual.attnpool.positional_embedding"][0] - 1) ** 0.5)
    layers = [_count(shapes, f"visual.layer{number}.") for number in (1, 2, 3, 4)]
    width = shapes["visual.layer1.0.conv1.weight"][0]
    return {"layers": layers, "width": width, "image_size": grid * 32, "head_width": _HEAD}


def _count(shapes: Shapes, prefix: str) -> int:
    """The number of blocks whose weights begin with a prefix and their number."""
    return len({name.removeprefix(prefix).partition(".")[0] for name in shapes if name.startswith(prefix)})
