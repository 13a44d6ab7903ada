"""Regions: several parts of a photo, each with its own vector."""

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
    """Which parts of a photo are its regions, by `method`.

    - `grid`: the cells of the backbone's last map.
    - `selective-search` and `edge-boxes`: the best proposed boxes, at most `count`, pooled from the last map. `model`
      is the file of OpenCV's structured forest, which detects edges for `edge-boxes`. A box is at least `smallest` of
      the photo's width and height; of boxes whose intersection over union is above `overlap`, the best is used.
    - `annotated`: boxes that came with the data, at most `count` per photo, pooled from the last map.
    - `crops`: the photo's crops, each with the backbone's vector of it.
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
    def are_boxes(self) -> bool:
        """Whether the regions are boxes, proposed or annotated, which differ from photo to photo."""
        return self.method not in ("grid", "crops")

    @property
    def from_map(self) -> bool:
        """Whether the vectors are taken from the backbone's last map; crops have the backbone's vectors instead."""
        return self.method != "crops"

    @property
    def label(self) -> str:
        """The regions in the name of a feature store: `grid`, `crops`, `selective-search-200-0.05-0.8`."""
        are_defaults = (self.smallest, self.overlap) == (Regions().smallest, Regions().overlap)
        thresholds = "" if are_defaults else f"-{self.smallest:g}-{self.overlap:g}"
        return f"{self.method}-{self.count}{thresholds}" if self.are_boxes else self.method


def forest_file(regions: Regions) -> Path | None:
    """The file of the structured forest, if the regions need one; raises DataError if it does not exist."""
    if regions.model is None:
        return None
    file = Path(regions.model)
    if not file.is_file():
        raise DataError(f"{file}: no such file of a structured forest; edge-boxes needs OpenCV's model.yml.gz")
    return file


def check_whole_photo(regions: Regions | None, crops: Crops) -> None:
    """Refuse boxes with crops that show only a part of the photo, because boxes are relative to the whole photo."""
    if regions is not None and regions.are_boxes and crops.name != "whole":
        raise RecipeError(f'{regions.method} needs crops = "whole", not {crops.name!r}: boxes lie in the whole photo')


def grid_boxes(cells: int, crops: Crops, side: int) -> Floats:
    """The boxes of a square map's cells, row by row, relative to the whole photo: (cells, 4)."""
    if crops.name not in ("whole", "1C") or (crops.name, crops.resize) == ("1C", "short"):
        raise RecipeError(
            f"crops = {crops.name!r}: its cells have no fixed position in the photo; use whole or 1C (square)"
        )
    resized = side if crops.name == "whole" else resized_side(side)
    first = round((resized - side) / 2)
    count = round(cells**0.5)  # along a side
    edges = (first + side * np.arange(count + 1) / count) / resized
    top, left = (index.ravel() for index in np.mgrid[0:count, 0:count])
    return np.stack([edges[left], edges[top], edges[left + 1], edges[top + 1]], axis=1).astype(np.float32)
