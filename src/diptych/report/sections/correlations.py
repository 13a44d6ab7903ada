"""Correlations between images before and after training, as two heat maps (Fig. 4 of the dual-path paper)."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from diptych.errors import DiptychError
from diptych.evaluation.analyses.correlations import Correlations, Matrix, correlations, mean_absolute
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus

# The colours of -1, 0 and 1; the scale in style.css uses the same ones.
_NEGATIVE, _ZERO, _POSITIVE = (np.array(colour, float) for colour in ((33, 82, 158), (250, 249, 247), (178, 62, 12)))


@dataclass(frozen=True)
class HeatMap:
    """A correlation matrix as a picture (a data: URI), and the mean absolute value off its diagonal."""

    name: str
    picture: str
    mean: float


@dataclass(frozen=True)
class CorrelationSection:
    """Heat maps before and after training; the note explains them, or why there are none."""

    note: str
    maps: Sequence[HeatMap] = ()


def correlation_section(model: Model, encoded: EncodedCorpus) -> CorrelationSection | None:
    """Heat maps of some images; None for fewer than two images, or if the model has no features before training."""
    if len(encoded.images) < 2:
        return None
    try:
        found = correlations(model, encoded)
    except DiptychError as reason:  # missing pretrained weights must not prevent the rest of the report
        return CorrelationSection(f"The features before training are not available: {reason}")
    return None if found.before is None else _section(found, found.before, model)


def _section(found: Correlations, before: Matrix, model: Model) -> CorrelationSection:
    backbone = model.matcher.pretrained
    origin = "the features of the corpus" if backbone is None else f"the features of the pretrained {backbone.name}"
    note = (
        f"Pearson correlation between every two of {len(found.images)} images, computed from {origin} and from the "
        "model's image embeddings. The lower the correlation between different images, the better the model "
        "distinguishes them."
    )
    matrices = {"Before": before, "After": found.after}
    maps = [HeatMap(name, heat_map_uri(matrix), mean_absolute(matrix)) for name, matrix in matrices.items()]
    return CorrelationSection(note, maps)


def heat_map_uri(matrix: Matrix) -> str:
    """Values from -1 to 1 as a PNG with one pixel per value, in a data: URI."""
    levels = np.linspace(-1, 1, 255)[:, None]
    ends = np.where(levels < 0, _NEGATIVE, _POSITIVE)
    palette = (_ZERO + (ends - _ZERO) * np.abs(levels)).round().astype(np.uint8)
    image = Image.fromarray(((matrix.clip(-1, 1) + 1) * 127).round().astype(np.uint8))
    image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
