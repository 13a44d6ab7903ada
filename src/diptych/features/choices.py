"""The accepted values of options in recipes and on the command line.

They have a module of their own, without further imports, so that the command line starts quickly.
"""

from __future__ import annotations

from typing import Literal

CropName = Literal["1C", "10C", "whole", "mirrored", "views", "scales", "centre"]
Resize = Literal["square", "short"]
Quality = Literal["fast", "best"]
Interpolation = Literal["bilinear", "bicubic"]
Rounding = Literal["even", "down"]
RandomCrop = Literal["RC", "window", "one"]
Dtype = Literal["float16", "float32"]
RegionMethod = Literal["grid", "selective-search", "edge-boxes", "crops"]
