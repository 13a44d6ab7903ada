"""Folders with a sentence encoder of the BERT family, in the layout of transformers and sentence-transformers.

Nothing here needs torch or transformers, and nothing in a folder is ever run: its configuration is JSON, its weights
are safetensors.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from diptych.errors import RecipeError
from diptych.files import read_json
from diptych.models.pickled import find_pickle, refuse_pickle
from diptych.settings import Count, Flag, Settings

FAMILY = ("albert", "bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta")

Pooling = Literal["mean", "cls", "max"]

# What 1_Pooling/config.json calls each way of pooling; all others are refused.
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
# Keys of config.json that describe where it comes from, or could make transformers load code.
_NOT_ARCHITECTURE = ("architectures", "attn_implementation", "auto_map", "quantization_config", "transformers_version")


class Architecture(Settings):
    """What an encoder computes: its network as transformers configures it, the pooling, and whether it normalises.

    `length` is the largest number of tokens of a text, special tokens included; the tokeniser cuts longer texts.
    """

    config: dict[str, Any]
    pooling: Pooling = "mean"
    normalise: Flag = False
    length: Count

    @field_validator("config")
    @classmethod
    def _of_the_family(cls, config: dict[str, Any]) -> dict[str, Any]:
        if config.get("model_type") not in FAMILY:
            raise PydanticCustomError("config", "model_type is not one of {family}", {"family": ", ".join(FAMILY)})
        return _architecture_keys(config)

    @classmethod
    def read(cls, folder: Path) -> Architecture:
        """The architecture of the encoder in a folder; RecipeError if it cannot be used."""
        config = _json(folder / "config.json")
        kind = config.get("model_type")
        if kind not in FAMILY:
            raise RecipeError(
                f"{folder / 'config.json'}: its model_type is {kind!r}, not one of the BERT family "
                f"({', '.join(FAMILY)}); name the folder of such an encoder"
            )
        pooling, normalise = _after_the_network(folder)
        return cls(config=config, pooling=pooling, normalise=normalise, length=_length(folder, config))


def check_files(folder: Path) -> None:
    """Refuse a folder without a configuration, safetensors or a tokenizer.json; the error says how to make them."""
    if not (folder / "config.json").is_file():
        raise RecipeError(f"{folder}: has no config.json; name a folder that transformers' save_pretrained has written")
    weights_files(folder)
    tokenizer_file(folder)


def weights_files(folder: Path) -> list[Path]:
    """The safetensors files with the weights of a folder; pickled weights are refused."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if index.is_file():
        parts = _json(index).get("weight_map")
        if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
            raise RecipeError(f"{index}: has no 'weight_map' from weights to files; copy the folder again")
        return sorted({folder / Path(name).name for name in parts.values()})
    pickled = find_pickle(folder, ["pytorch_model.bin"])
    if pickled is None:
        raise RecipeError(f"{folder}: has no model.safetensors; copy the folder again, with its weights")
    raise refuse_pickle(pickled, whole)


def tokenizer_file(folder: Path) -> Path:
    """The tokenizer.json of a folder."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        program = (
            "import sys; from transformers import AutoTokenizer; "
            "AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True).save_pretrained(sys.argv[1])"
        )
        command = shlex.join(["python", "-c", program, str(folder)])
        raise RecipeError(f"{folder}: has no tokenizer.json; write one: {command}")
    return file


def lowers(folder: Path) -> bool:
    """Whether texts are lowered before the tokenizer reads them."""
    settings = folder / "sentence_bert_config.json"
    return settings.is_file() and _json(settings).get("do_lower_case") is True


def _after_the_network(folder: Path) -> tuple[Pooling, bool]:
    """The pooling and the normalisation in modules.json; without that file the mean, as sentence-transformers does."""
    file = folder / "modules.json"
    if not file.is_file():
        return "mean", False
    modules = _json(file, list)
    pooling: Pooling = "mean"
    normalise = False
    for module in modules[1:]:
        kind = str(module.get("type")).rpartition(".")[2] if isinstance(module, dict) else "None"
        if kind == "Pooling":
            pooling = _pooling(folder / str(module.get("path")) / "config.json")
        elif kind == "Normalize":
            normalise = True
        else:
            raise RecipeError(f"{file}: has the module {kind!r}; only Transformer, Pooling and Normalize are supported")
    return pooling, normalise


def _pooling(file: Path) -> Pooling:
    config = _json(file)
    modes = [mode for mode, chosen in config.items() if mode.startswith("pooling_mode_") and chosen is True]
    if isinstance(config.get("pooling_mode"), str):  # as of sentence-transformers 5.2
        modes = [next((key for key, name in _POOLINGS.items() if name == config["pooling_mode"]), "pooling_mode")]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise RecipeError(f"{file}: pools by {', '.join(modes) or 'nothing'}; only mean, cls and max are supported")
    return _POOLINGS[modes[0]]


def _length(folder: Path, config: dict[str, Any]) -> int:
    """The largest number of tokens: sentence-transformers' setting, and no more than the network has positions for."""
    positions = int(config.get("max_position_embeddings", 512))
    # RoBERTa and its kin number positions from pad_token_id + 1.
    positions -= 2 if config["model_type"] in ("camembert", "mpnet", "roberta", "xlm-roberta") else 0
    settings = folder / "sentence_bert_config.json"
    longest = _json(settings).get("max_seq_length") if settings.is_file() else None
    return min(longest, positions) if isinstance(longest, int) and longest > 0 else positions


def _architecture_keys(config: dict[str, Any]) -> dict[str, Any]:
    """The keys that describe the network; a null is transformers' default, and TOML has none."""
    return {
        key: value
        for key, value in sorted(config.items())
        if value is not None and not key.startswith("_") and key not in _NOT_ARCHITECTURE
    }


def _json(file: Path, kind: type = dict) -> Any:
    content = read_json(file, RecipeError)
    if not isinstance(content, kind):
        raise RecipeError(f"{file}: not a JSON {'object' if kind is dict else 'array'}; copy the folder again")
    return content
