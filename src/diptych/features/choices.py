"""The words that recipes and the command line choose crops, regions and numbers with."""

from __future__ import annotations

from typing import Literal

CropName = Literal["1C", "10C", "whole", "mirrored", "views"]
Resize = Literal["square", "short"]
RandomCrop = Literal["RC", "window"]
Dtype = Literal["float16", "float32"]
RegionMethod = Literal["grid", "selective-search", "edge-boxes", "crops"]
