"""Libraries that benchmarks compare with, imported where they are compared."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


def import_open_clip() -> Any:
    """open_clip; torchvision, which it imports, lacks two operators beside a CPU-only torch, and needs neither here."""
    try:
        return import_module("open_clip")
    except RuntimeError:
        operators = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_open_clip.operators = operators  # type: ignore[attr-defined]  # they live as long as this
        return import_module("open_clip")
