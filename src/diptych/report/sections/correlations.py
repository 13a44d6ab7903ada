"""How alike images are before and after training, as two maps of their correlations (Fig. 4 of the dual-path paper)."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from diptych.errors import DiptychError
from diptych.evaluation.analyses.correlations import Correlations, Matrix, correlations, mean_absolute
from diptych.models.encodings import Encoded
from diptych.models.trained import Trained
from diptych.report.run_page import CorrelationSection, HeatMap

# What is opposite, what is not alike, and what is alike; the page's scale has the same colours.
_OPPOSITE, _NONE, _ALIKE = (np.array(colour, float) for colour in ((33, 82, 158), (250, 249, 247), (178, 62, 12)))


def correlation_section(trained: Trained, encoded: Encoded) -> CorrelationSection | None:
    """Maps of some images before and after; none for fewer than two, or where there was nothing before training."""
    if len(encoded.images) < 2:
        return None
    try:
        found = correlations(trained, encoded)
    except DiptychError as reason:  # pretrained weights that can no longer be had shall not cost the report
        return CorrelationSection(f"What there was before training cannot be had: {reason}")
    return None if found.before is None else _section(found, found.before, trained)


def _section(found: Correlations, before: Matrix, trained: Trained) -> CorrelationSection:
    backbone = trained.matcher.pretrained
    origin = "the features of the corpus" if backbone is None else f"{backbone.name} as it was before training"
    note = (
        f"Pearson's correlation of every two of {len(found.images)} images: by {origin}, and by what the model makes "
        "of them. The less different images correlate the better they are told apart."
    )
    named = {"Before": before, "After": found.after}
    maps = [HeatMap(name, heat(matrix), mean_absolute(matrix)) for name, matrix in named.items()]
    return CorrelationSection(note, maps)


def heat(matrix: Matrix) -> str:
    """Values from -1 to 1 as a small PNG in a data: URI, a pixel each."""
    places = np.linspace(-1, 1, 255)[:, None]
    ends = np.where(places < 0, _OPPOSITE, _ALIKE)
    palette = (_NONE + (ends - _NONE) * np.abs(places)).round().astype(np.uint8)
    image = Image.fromarray(((matrix.clip(-1, 1) + 1) * 127).round().astype(np.uint8))
    image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
