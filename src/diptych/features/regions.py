"""Regions: several places of a photo, each with a vector of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from diptych.data.corpus import Floats
from diptych.errors import DataError, RecipeError
from diptych.features.crops import Crops, resized_side
from diptych.settings import Count, Number, Settings

Share = Annotated[Number, Field(gt=0, le=1)]


class Regions(Settings):
    """Which places of a photo are its regions.

    `grid`: the cells of the backbone's last map. `selective-search` and `edge-boxes`: the `count` best boxes that may
    hold a thing, or fewer, pooled from that map; `model` is the file of OpenCV's structured forest, which finds the
    edges for `edge-boxes`. `annotated`: boxes that came with the data, at most `count` a photo. A proposed box is at
    least `smallest` of the photo's width and height, and boxes that share more than `overlap` of what they cover are
    one region. `crops`: no places of the map, but the photo's crops, each with the backbone's own vector of it.
    """

    method: Literal["grid", "selective-search", "edge-boxes", "annotated", "crops"] = "grid"
    count: Count = 36
    smallest: Share = 0.1
    overlap: Share = 0.7
    model: str | None = Field(default=None, validate_default=True)

    @field_validator("model")
    @classmethod
    def _model_of_edge_boxes(cls, model: str | None, fields: ValidationInfo) -> str | None:
        method = fields.data.get("method")
        if method == "edge-boxes" and not model:
            raise PydanticCustomError("model", "edge-boxes needs the file of OpenCV's structured forest (model.yml.gz)")
        if model is not None and method not in ("edge-boxes", None):
            raise PydanticCustomError("model", "a structured forest belongs to edge-boxes; leave it out")
        return model

    @property
    def proposed(self) -> bool:
        """Whether the regions are boxes that differ from photo to photo."""
        return self.method not in ("grid", "crops")

    @property
    def of_map(self) -> bool:
        """Whether the regions are places of the backbone's last map; crops have the backbone's vectors instead."""
        return self.method != "crops"

    @property
    def label(self) -> str:
        """The regions as a word of a folder's name: `grid`, `crops`, `selective-search-200-0.05-0.8`."""
        usual = (self.smallest, self.overlap) == (Regions().smallest, Regions().overlap)
        chosen = "" if usual else f"-{self.smallest:g}-{self.overlap:g}"
        return f"{self.method}-{self.count}{chosen}" if self.proposed else self.method


def forest_file(regions: Regions) -> Path | None:
    """The file of the regions' structured forest, which must be there, where they need one."""
    if regions.model is None:
        return None
    file = Path(regions.model)
    if not file.is_file():
        raise DataError(f"{file}: no such file of a structured forest; edge-boxes needs OpenCV's model.yml.gz")
    return file


def check_seen(regions: Regions | None, crops: Crops) -> None:
    """Refuse proposals where only a part of the photo is seen: boxes of the photo would lie beside what they name."""
    if regions is not None and regions.proposed and crops.name != "whole":
        raise RecipeError(f'{regions.method} needs crops = "whole", not {crops.name!r}: boxes lie in the whole photo')


def grid_boxes(cells: int, crops: Crops, side: int) -> Floats:
    """Where the cells of a square map lie in the whole photo, row by row, relative: (cells, 4)."""
    if crops.name not in ("whole", "1C") or (crops.name, crops.resize) == ("1C", "short"):
        raise RecipeError(
            f"crops = {crops.name!r}: its cells lie in no one place of the photo; use whole or 1C (square)"
        )
    resized = side if crops.name == "whole" else resized_side(side)
    first = round((resized - side) / 2)
    along = round(cells**0.5)
    edges = (first + side * np.arange(along + 1) / along) / resized
    top, left = (place.ravel() for place in np.mgrid[0:along, 0:along])
    return np.stack([edges[left], edges[top], edges[left + 1], edges[top + 1]], axis=1).astype(np.float32)
