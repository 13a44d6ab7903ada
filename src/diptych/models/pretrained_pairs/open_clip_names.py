"""`open_clip:NAME/TAG` and `open_clip:NAME/FOLDER`: an architecture of open_clip, with published or own weights.

A tag also says which activation and which preprocessing the weights were trained with. A folder with an
open_clip_config.json says so itself; weights without one are read as open_clip's published weights of that name are.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diptych.errors import RecipeError, did_you_mean
from diptych.files import read_json
from diptych.models.pickled import SUFFIXES, refuse_pickle
from diptych.models.pretrained_pairs import hub
from diptych.models.pretrained_pairs.open_clip_layout import CONFIG, check_supported, described
from diptych.models.pretrained_pairs.source import PairSource
from diptych.models.pretrained_pairs.tokenizer_files import CONFIG as TOKENIZER_CONFIG
from diptych.models.pretrained_pairs.tokenizer_files import DOCUMENT, TokenizerFiles
from diptych.models.pretrained_pairs.weights import NAMES, weights_files
from diptych.optional import import_optional

PREFIX = "open_clip:"
INSTALL = "pip install 'diptych[open-clip]'"

_DEFAULT = "open_clip_pytorch_model.bin"  # of a repository, if the tag names no file


def find(address: str) -> PairSource:
    """The pair at an address that begins with `open_clip:`; RecipeError if there is none."""
    name, _, rest = address.removeprefix(PREFIX).partition("/")
    library = _open_clip()
    known = library.list_models()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=5, cutoff=0.0)
        raise RecipeError(f"{address}: open_clip has no model {name!r}; {did_you_mean(name, close)}")
    model = library.get_model_config(name)
    check_supported(address, model["text_cfg"])
    tags = library.list_pretrained_tags_by_model(name)
    if rest in tags:
        return _tagged(address, model, library.get_pretrained_cfg(name, rest))
    folder = Path(rest) if Path(rest).is_dir() else Path("/", rest)  # a path loses one slash of NAME//tmp/weights
    if not rest or not folder.is_dir():
        close = difflib.get_close_matches(rest, tags, n=5, cutoff=0.0)
        raise RecipeError(
            f"{address}: {rest or 'nothing'!r} is neither a folder with weights nor a tag of {name}; "
            f"{did_you_mean(rest, close)}"
        )
    published = library.get_pretrained_cfg(name, tags[0]) if tags else {}
    preprocessing = _preprocess_of_folder(folder) or published
    tokenizer = TokenizerFiles.of_folder(folder) if _tokenizer_name(model) else None
    return described(address, model, preprocessing, weights_files(folder), tokenizer)


def _preprocess_of_folder(folder: Path) -> Mapping[str, Any] | None:
    content = read_json(folder / CONFIG, RecipeError) if (folder / CONFIG).is_file() else {}
    found = content.get("preprocess_cfg") if isinstance(content, dict) else None
    return found if isinstance(found, dict) else None


def _tagged(address: str, model: dict[str, Any], tag: Mapping[str, Any]) -> PairSource:
    """An architecture with the published weights of a tag, from the user's cache."""
    weights = _published_weights(address, tag)
    name = _tokenizer_name(model)
    tokenizer = None if name is None else _published_tokenizer(address, name)
    model = {**model, "quick_gelu": bool(model.get("quick_gelu") or tag.get("quick_gelu"))}
    return described(address, model, tag, (weights,), tokenizer)


def _published_weights(address: str, tag: Mapping[str, Any]) -> Path:
    if "file" in tag:
        file = Path(tag["file"])
        if file.suffix in SUFFIXES:
            raise refuse_pickle(file, file.with_suffix(".safetensors"))
        return file
    if not tag.get("hf_hub"):
        raise RecipeError(
            f"{address}: its weights are published only as a pickle ({tag.get('url')}); download and convert it, and "
            f"name the folder: {address.rpartition('/')[0]}/FOLDER"
        )
    repository, _, name = tag["hf_hub"].rpartition("/")
    pickled = name or _DEFAULT
    safe = [NAMES[0]] if pickled == _DEFAULT else [Path(pickled).with_suffix(".safetensors").name, *NAMES]
    for candidate in safe:
        found = hub.hub_file(address, repository, candidate)
        if found is not None:
            return found
    with hub.only_from_cache():
        cached = hub.hub_file(address, repository, pickled)
    if cached is not None:
        folder = Path(address.partition(":")[2].replace("/", "-"))
        raise refuse_pickle(cached, folder / NAMES[0])
    raise hub.not_in_cache(address, safe[0], repository)


def _published_tokenizer(address: str, repository: str) -> TokenizerFiles:
    document = hub.hub_file(address, repository, DOCUMENT)
    if document is None:
        raise hub.not_in_cache(address, DOCUMENT, repository)
    return TokenizerFiles(document, hub.hub_file(address, repository, TOKENIZER_CONFIG))


def _tokenizer_name(model: Mapping[str, Any]) -> str | None:
    name = model["text_cfg"].get("hf_tokenizer_name")
    return str(name) if name else None


def _open_clip() -> Any:
    return import_optional("open_clip", INSTALL, instead="a folder in transformers' layout")
