"""Exports a run at half its size: only what is needed to use it, with weights in float16.

Every command opens it like any other run; the weights become float32 again when they are loaded. Matrices and kernels,
nearly all of a file, are rounded. Vectors (biases, batch norm statistics) are not: a variance may exceed the range of
float16, and vectors are small. Matrices with values that float16 cannot represent well are not rounded, either.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor

from diptych.models.address import ModelFiles
from diptych.models.calibration.calibration import copy_calibration
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.export.exported import new_folder
from diptych.models.storage import load_tensors, matcher_header, save_tensors

KEPT = ("recipe.toml", "best/metrics.json")


def export_float16(run: str | Path, into: Path) -> None:
    """Write a run's best model as a float16 run, completely or not at all, and open it once as a check."""
    files = ModelFiles.find(run)
    files.check_is_run()
    folder = files.folder
    engine = TorchEngine.open(files, "cpu")  # so that an error names the run, and not its copy
    with new_folder(into) as temporary:
        (temporary / "best").mkdir()
        engine.tokeniser.save(temporary)
        if files.pair is not None:
            tensors, about = engine.matcher.state_dict(), matcher_header(engine.matcher, engine.tokeniser)
        else:
            for name in KEPT:
                if (folder / name).is_file():
                    shutil.copyfile(folder / name, temporary / name)
            tensors, about = load_tensors(folder / "best" / "weights.safetensors")
        halves = {name: halved(tensor) for name, tensor in tensors.items()}
        save_tensors(temporary / "best" / "weights.safetensors", halves, about)
        TorchEngine.open(temporary, "cpu")
        if files.pair is None:
            copy_calibration(folder, temporary, ModelFiles.find(temporary).identity())


def halved(tensor: Tensor) -> Tensor:
    """The tensor in float16, or unchanged if it is not a float matrix or float16 is too inaccurate."""
    if tensor.dtype != torch.float32 or tensor.dim() < 2 or not tensor.numel():
        return tensor
    half = tensor.half()
    # Half a unit in the last place; float16 is coarser for very small numbers and infinite for large ones.
    near = (half.float() - tensor).abs().amax() <= tensor.abs().amax() * 2.0**-11
    return half if bool(near) else tensor
