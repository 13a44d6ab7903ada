"""Pairs as transformers writes them with save_pretrained: CLIP, SigLIP and SigLIP 2.

    config.json                     the model_type: clip, siglip (also SigLIP 2) or siglip2 (SigLIP 2 NaFlex)
    model.safetensors               the weights
    tokenizer.json                  and tokenizer_config.json
    preprocessor_config.json        how images are read

Newer versions of transformers write the preprocessor into processor_config.json; both are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diptych.errors import DiptychError, RecipeError, one_line
from diptych.features.patches import packed_side
from diptych.files import read_json
from diptych.models.pretrained_pairs.architecture import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    PairArchitecture,
    Preprocessing,
    TextReading,
)
from diptych.models.pretrained_pairs.source import PairSource
from diptych.models.pretrained_pairs.tokenizer_files import TokenizerFiles
from diptych.models.pretrained_pairs.weights import weights_files
from diptych.optional import import_optional, quiet
from diptych.text.tokenisers.pretrained import Pretrained

CONFIG = "config.json"
KINDS = ("clip", "siglip", "siglip2")
INSTALL = "pip install 'diptych[transformers]'"

_PREPROCESSORS = ("preprocessor_config.json", "processor_config.json")
_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}  # by PIL's numbers
_MOST_PATCHES = 256  # of an image, if the preprocessor does not say
_LEGACY_END = 2  # older configurations of CLIP give this number, which stands for the largest id of a text
_NOT_ARCHITECTURE = ("architectures", "attn_implementation", "auto_map", "quantization_config", "transformers_version")


def read_folder(folder: Path, address: str) -> PairSource:
    """The pair in a folder with a config.json of transformers."""
    config = _json(folder / CONFIG)
    kind = config.get("model_type")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise RecipeError(
            f"{folder / CONFIG}: its model_type is {kind!r}, not one of {known}; name the folder of such a pair"
        )
    weights = weights_files(folder)
    tokenizer = TokenizerFiles.of_folder(folder, "Siglip2Tokenizer" if kind == "siglip2" else None)
    kept = architecture_keys(config)
    full = full_config(kept)
    vision, text = full.vision_config, full.text_config
    reading = _text_reading(kind, text, tokenizer)
    architecture = PairArchitecture(
        library="transformers",
        config=kept,
        size=full.projection_dim if kind == "clip" else vision.hidden_size,
        ids=text.vocab_size,
        image=_preprocessing(folder, kind, vision),
        text=reading,
    )

    def make_tokeniser(prompt: str | None) -> Pretrained:
        return tokenizer.tokeniser(context=reading.context, clean=tokenizer.cleaning, prompt=prompt)

    end = text.eos_token_id if kind == "clip" and text.eos_token_id != _LEGACY_END else None
    return PairSource(address, architecture, weights, (folder / CONFIG, *tokenizer.paths), make_tokeniser, end)


def full_config(config: Mapping[str, Any]) -> Any:
    """The configuration as an object of transformers, with its defaults."""
    library = import_optional("transformers", INSTALL, instead="a folder in open_clip's layout")
    try:
        with quiet():
            return library.AutoConfig.for_model(**config)
    except Exception as reason:  # whatever a value that transformers cannot take raises
        raise DiptychError(f"transformers cannot read the configuration of a pair ({one_line(reason)})") from None


def architecture_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that describe the networks; a null is transformers' default, and TOML has none."""
    return {
        key: architecture_keys(value) if isinstance(value, dict) else value
        for key, value in sorted(config.items())
        if value is not None and not key.startswith("_") and key not in _NOT_ARCHITECTURE
    }


def _text_reading(kind: str, text: Any, tokenizer: TokenizerFiles) -> TextReading:
    """CLIP is causal and takes its vector at the end of a text; SigLIP reads the padding."""
    context = tokenizer.context(int(text.max_position_embeddings))
    if kind == "clip":
        return TextReading(context=context)
    named = tokenizer.id_of("pad_token")
    fill = text.pad_token_id if named is None else named
    context = int(text.max_position_embeddings)
    return TextReading.model_validate({"context": context, "fill": fill, "fill_side": tokenizer.fill_side})


def _preprocessing(folder: Path, kind: str, vision: Any) -> Preprocessing:
    file = next((folder / name for name in _PREPROCESSORS if (folder / name).is_file()), None)
    if file is None:
        raise RecipeError(f"{folder}: has no {_PREPROCESSORS[0]}; copy it from where the weights come from")
    content = _json(file)
    given = content.get("image_processor", content)
    patches: dict[str, int] = {}
    if kind == "siglip2":
        patches = {"patch": int(vision.patch_size), "patches": int(given.get("max_num_patches", _MOST_PATCHES))}
    side = packed_side(patches["patch"], patches["patches"]) if patches else int(vision.image_size)
    crop = "patches" if patches else _crop(given, kind, side)
    interpolation = _INTERPOLATIONS.get(given.get("resample", 2 if patches else 3))
    if crop is None or interpolation is None or given.get("do_rescale") is False or given.get("do_resize") is False:
        raise RecipeError(
            f"{file}: prepares images in a way that is not supported; only resizing to {side} x {side} pixels, or of "
            "the short side with a central crop, by bilinear or bicubic interpolation is"
        )
    is_normalised = given.get("do_normalize") is not False
    mean, deviation = (CLIP_MEAN, CLIP_DEVIATION) if kind == "clip" else ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return Preprocessing.model_validate(
        {
            "side": side,
            "crop": crop,
            "interpolation": interpolation,
            "rounding": "down",
            "mean": tuple(given.get("image_mean") or mean) if is_normalised else (0.0, 0.0, 0.0),
            "deviation": tuple(given.get("image_std") or deviation) if is_normalised else (1.0, 1.0, 1.0),
            **patches,
        }
    )


def _crop(given: Mapping[str, Any], kind: str, side: int) -> str | None:
    """The name of the crop that the network's square is; None if it is another one."""
    size = given.get("size", {"shortest_edge": side} if kind == "clip" else {"height": side, "width": side})
    is_cropped = given.get("do_center_crop", kind == "clip")
    cropped = given.get("crop_size", side)
    squares = (side, {"height": side, "width": side})
    if size in ((side, {"shortest_edge": side}) if kind == "clip" else ({"shortest_edge": side},)):
        return "centre" if is_cropped and cropped in squares else None
    return "whole" if size in squares else None


def _json(file: Path) -> dict[str, Any]:
    content = read_json(file, RecipeError)
    if not isinstance(content, dict):
        raise RecipeError(f"{file}: not a JSON object; copy the folder again")
    return content
