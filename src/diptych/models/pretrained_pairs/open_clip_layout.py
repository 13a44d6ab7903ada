"""Pairs as open_clip knows them: a folder with an open_clip_config.json, or a name of open_clip with weights for it.

    open_clip_config.json           {"model_cfg": {...}, "preprocess_cfg": {...}}
    open_clip_model.safetensors     the weights
    tokenizer.json                  only for networks that do not read CLIP's own tokens

The configurations are those of open_clip's own functions; nothing else of the folder is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from diptych.errors import RecipeError
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
from diptych.text.tokenisers.clip import CONTEXT, clip_tokeniser
from diptych.text.tokenisers.pretrained import Pretrained

CONFIG = "open_clip_config.json"

_CLIP_IDS = 49408
_CROPS = {"shortest": "centre", "squash": "whole"}
_TOKENIZER_OPTIONS = frozenset({"clean", "strip_sep_token"})


def read_folder(folder: Path, address: str) -> PairSource:
    """The pair in a folder with an open_clip_config.json."""
    content = read_json(folder / CONFIG, RecipeError)
    if not isinstance(content, dict) or not isinstance(content.get("model_cfg"), dict):
        raise RecipeError(f"{folder / CONFIG}: has no 'model_cfg' of open_clip; copy the folder again")
    preprocessing = content.get("preprocess_cfg")
    return described(
        address,
        content["model_cfg"],
        preprocessing if isinstance(preprocessing, dict) else {},
        weights_files(folder),
        TokenizerFiles.of_folder(folder) if _names_tokenizer(content["model_cfg"]) else None,
        (folder / CONFIG,),
    )


def _names_tokenizer(model: Mapping[str, Any]) -> bool:
    text = model.get("text_cfg")
    return isinstance(text, dict) and bool(text.get("hf_tokenizer_name"))


def described(
    address: str,
    model: Mapping[str, Any],
    preprocessing: Mapping[str, Any],
    weights: tuple[Path, ...],
    tokenizer: TokenizerFiles | None,
    files: tuple[Path, ...] = (),
) -> PairSource:
    """A pair with open_clip's configurations of model and preprocessing; `tokenizer` unless it reads CLIP's tokens."""
    if not all(key in model for key in ("embed_dim", "vision_cfg", "text_cfg")):
        raise RecipeError(
            f"{address}: its configuration lacks embed_dim, vision_cfg or text_cfg; copy the folder again"
        )
    vision, text = dict(model["vision_cfg"]), dict(model["text_cfg"])
    check_supported(address, text)
    reading = _text_reading(address, text, tokenizer)
    ids = int(text.get("vocab_size", _CLIP_IDS))
    architecture = PairArchitecture(
        library="open_clip",
        config={
            "embed_dim": model["embed_dim"],
            "quick_gelu": bool(model.get("quick_gelu")),
            # TOML has no null. It is open_clip's default, except that without `timm_proj` the classifier projects.
            "vision_cfg": _without_nulls({**vision, "timm_model_pretrained": False, **_projection(vision)}),
            "text_cfg": _without_nulls(text),
        },
        size=int(model["embed_dim"]),
        ids=ids,
        image=_preprocessing(address, vision.get("image_size", 224), preprocessing),
        text=reading,
    )
    end = ids - 1 if tokenizer is None and ids == _CLIP_IDS else None
    own = () if tokenizer is None else tokenizer.paths
    make_tokeniser = partial(_tokeniser, text.get("tokenizer_kwargs") or {}, tokenizer, reading.context)
    return PairSource(address, architecture, weights, (*files, *own), make_tokeniser, end)


def _tokeniser(
    options: Mapping[str, Any], tokenizer: TokenizerFiles | None, context: int, prompt: str | None
) -> Pretrained:
    """The tokeniser with the options of open_clip's `tokenizer_kwargs`; without a tokenizer, CLIP's."""
    if tokenizer is None:
        return clip_tokeniser(context, options.get("clean", "lower"), prompt)
    separator = tokenizer.id_of("sep_token") if options.get("strip_sep_token") else None
    blank = () if separator is None else (separator,)
    return tokenizer.tokeniser(context=context, clean=options.get("clean", "whitespace"), blank=blank, prompt=prompt)


def check_supported(address: str, text: Mapping[str, Any]) -> None:
    """Refuse text networks and tokenizers that only open_clip itself can run."""
    for key, meaning in (("hf_model_name", "a text network of transformers"), ("tokenizer_mode", "a tokenizer mode")):
        if text.get(key):
            raise RecipeError(f"{address}: has {meaning} ({text[key]}), which is not supported; choose another model")
    unknown = set(text.get("tokenizer_kwargs") or {}) - _TOKENIZER_OPTIONS
    if unknown:
        raise RecipeError(
            f"{address}: its tokenizer has the option {min(unknown)!r}, which is not supported; choose another model"
        )


def _text_reading(address: str, text: Mapping[str, Any], tokenizer: TokenizerFiles | None) -> TextReading:
    """How texts are padded; a causal network that takes its vector at the end of a text never sees the padding."""
    context = int(text.get("context_length", CONTEXT))
    pools_at_end = text.get("pool_type", "argmax") == "argmax" and not text.get("embed_cls")
    if tokenizer is None:
        sees_padding = bool(text.get("no_causal_mask")) or not pools_at_end
        return TextReading(context=context, fill=0 if sees_padding else None)
    fill = tokenizer.id_of("pad_token")
    if fill is None:
        raise RecipeError(f"{address}: its tokenizer_config.json names no pad_token; use the one of the weights")
    return TextReading.model_validate({"context": context, "fill": fill, "fill_side": tokenizer.fill_side})


def _preprocessing(address: str, size: Any, given: Mapping[str, Any]) -> Preprocessing:
    sides = [size, size] if isinstance(size, int) else list(size)
    mode, interpolation = given.get("resize_mode") or "shortest", given.get("interpolation") or "bicubic"
    if sides[0] != sides[1]:
        raise RecipeError(f"{address}: reads images of {sides[0]} x {sides[1]}; choose a model that reads squares")
    if mode not in _CROPS or interpolation not in ("bicubic", "bilinear"):
        raise RecipeError(
            f"{address}: resizes images by {mode!r} with {interpolation!r} interpolation, which is not supported; "
            "choose another model"
        )
    return Preprocessing.model_validate(
        {
            "side": sides[0],
            "crop": _CROPS[mode],
            "interpolation": interpolation,
            "mean": tuple(given.get("mean") or CLIP_MEAN),
            "deviation": tuple(given.get("std") or CLIP_DEVIATION),
        }
    )


def _projection(vision: Mapping[str, Any]) -> dict[str, Any]:
    return {"timm_proj": ""} if "timm_proj" in vision and vision["timm_proj"] is None else {}


def _without_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}
