"""Pickled checkpoints: they can run code when they are opened, and are refused with the command that converts them.

The commands run no code of the file: torch reads tensors only, or the weights of a TorchScript archive.
"""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Iterable
from pathlib import Path

from diptych.errors import RecipeError

SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")

_TENSORS = (
    "found = torch.load(sys.argv[1], 'cpu', weights_only=True); "
    "found = found.get('state_dict', found); "  # as open_clip's training writes it
)
_SCRIPT = "found = torch.jit.load(sys.argv[1], 'cpu').state_dict(); "
_SAVE = (
    "pathlib.Path(sys.argv[2]).parent.mkdir(parents=True, exist_ok=True); "
    "save_file({name.removeprefix('module.'): value.clone().contiguous() for name, value in found.items()}, "
    "sys.argv[2])"
)


def find_pickle(folder: Path, preferred: Iterable[str] = ()) -> Path | None:
    """The pickled checkpoint of a folder, one with a preferred name if there are several; None if it has none."""
    names = sorted(file.name for file in folder.iterdir() if file.suffix in SUFFIXES)
    chosen = next((name for name in preferred if name in names), names[0] if names else None)
    return None if chosen is None else folder / chosen


def refuse_pickle(pickled: Path, into: Path) -> RecipeError:
    """The error for a pickled checkpoint, with the command that converts it to a safetensors file."""
    return RecipeError(
        f"{pickled}: a pickled checkpoint can run code when it is opened and is refused; convert it without "
        f"running code: {conversion(pickled, into)}"
    )


def conversion(pickled: Path, into: Path) -> str:
    """The command that converts a pickled file of tensors to safetensors; torch refuses to run code in it."""
    load = _SCRIPT if _is_script(pickled) else _TENSORS
    program = f"import pathlib, sys, torch; from safetensors.torch import save_file; {load}{_SAVE}"
    return shlex.join(["python", "-c", program, str(pickled), str(into)])


def _is_script(file: Path) -> bool:
    """Whether a file is a TorchScript archive, as OpenAI has published CLIP."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())
