"""A run of half the size: what is needed to use it, its weights in float16.

Every command opens it as the run that it is; the weights become float32 again when they are loaded. What is rounded
are matrices and kernels, which are nearly all of a file. Vectors (biases, the statistics of batch norm) stay as they
are: a variance may be beyond what float16 holds, at either end, and they are few. A matrix with a number that float16
does not hold, or with none that it holds well, stays as well.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor

from diptych.models.address import ModelFiles
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.export.exported import new_folder
from diptych.models.storage import load_tensors, save_tensors

KEPT = ("vocabulary.json", "recipe.toml", "best/metrics.json")


def export_float16(run: str | Path, into: Path) -> None:
    """Write a run's best model as a slim run, whole or not at all, and open it once to see that it can be used."""
    files = ModelFiles.find(run)
    files.check_is_run()
    folder = files.folder
    TorchEngine.open(folder, "cpu")  # so that a run that cannot be used is named, and not its copy
    with new_folder(into) as temporary:
        (temporary / "best").mkdir()
        for name in KEPT:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, temporary / name)
        tensors, about = load_tensors(folder / "best" / "weights.safetensors")
        halves = {name: halved(tensor) for name, tensor in tensors.items()}
        save_tensors(temporary / "best" / "weights.safetensors", halves, about)
        TorchEngine.open(temporary, "cpu")


def halved(tensor: Tensor) -> Tensor:
    """The tensor in float16, or as it is where that is no matrix of floats or not near enough."""
    if tensor.dtype != torch.float32 or tensor.dim() < 2 or not tensor.numel():
        return tensor
    half = tensor.half()
    # Half a unit in the last place; below its smallest normal number float16 gets coarser, above its largest infinite.
    near = (half.float() - tensor).abs().amax() <= tensor.abs().amax() * 2.0**-11
    return half if bool(near) else tensor
