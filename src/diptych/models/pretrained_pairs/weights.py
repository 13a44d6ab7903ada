"""The weights of a pretrained pair: safetensors files of a folder, and their tensors. Pickles are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.errors import RecipeError, one_line
from diptych.files import read_json
from diptych.models.pickled import find_pickle, refuse_pickle

if TYPE_CHECKING:
    from torch import Tensor, nn

NAMES = ("open_clip_model.safetensors", "model.safetensors")
_PICKLED = ("open_clip_pytorch_model.bin", "open_clip_model.bin", "pytorch_model.bin")
_INDEX = "model.safetensors.index.json"


def weights_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files with the weights of a folder; RecipeError if it has none, or only pickles."""
    for name in NAMES:
        if (folder / name).is_file():
            return (folder / name,)
    if (folder / _INDEX).is_file():
        return _parts(folder / _INDEX)
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return (others[0],)
    pickled = find_pickle(folder, _PICKLED)
    if others or pickled is None:
        has = "several safetensors files" if others else "no safetensors file"
        raise RecipeError(f"{folder}: has {has}; name the weights {NAMES[0]}, or copy the folder again")
    raise refuse_pickle(pickled, folder / (NAMES[0] if "open_clip" in pickled.name else NAMES[1]))


def _parts(index: Path) -> tuple[Path, ...]:
    content = read_json(index, RecipeError)
    parts = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
        raise RecipeError(f"{index}: has no 'weight_map' from weights to files; copy the folder again")
    return tuple(sorted({index.parent / Path(name).name for name in parts.values()}))


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """The tensors of all files, in float32."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors |= load_file(file)
        except (SafetensorError, OSError) as reason:
            raise RecipeError(f"{file}: damaged or truncated ({one_line(reason)}); copy it again") from None
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def load_into(network: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copy tensors into a network, all and no others; RecipeError if they are those of another architecture."""
    expected = network.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        shapes = [tuple(some[name].shape) if name in some else "none" for some in (expected, tensors)]
        if shapes[0] != shapes[1]:
            raise RecipeError(
                f"{where}: weights of another architecture: the configuration describes {name} of shape {shapes[0]}, "
                f"and the file has {shapes[1]}; name the weights with their own configuration"
            )
    network.load_state_dict(dict(tensors))
