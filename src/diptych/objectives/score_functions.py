"""The scores of order embeddings, SCAN and BFAN as functions of plain tensors, to train own models with.

Each returns (images, texts), higher for better matches, and can be passed to an objective as `similarity`. The
equations are in `diptych.models.matchers.order`, `scan` and `bfan`, whose code computes them here, too.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import normalize

from diptych.errors import ScoreError
from diptych.models.layers.attention import Direction, Focal, Norm, PoolName
from diptych.models.layers.precision import at_least_float32, without_autocast
from diptych.models.layers.sets import present
from diptych.models.matchers import order
from diptych.models.matchers.bfan import BFANSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.objectives.input_checks import check_device, check_floats
from diptych.objectives.labels import Labels, integers
from diptych.settings import Settings, first_error

Kind = TypeVar("Kind", bound=Settings)


def order_scores(images: Tensor, texts: Tensor, *, root: bool = False) -> Tensor:
    """The score of order embeddings: -|| max(0, text - image) ||^2, or without the square with `root`.

    Images are (images, size), texts are (texts, size), and the scores (images, texts), higher is better.
    Order0 scores the absolute values of unit vectors: pass `images.abs()` and `texts.abs()`.
    """
    _check_sides({"images": images, "texts": texts}, dimensions=2)
    with without_autocast(images.device):
        return order.order_scores(at_least_float32(images), at_least_float32(texts), root=root)


def scan_scores(  # noqa: PLR0913 (options, by keyword only)
    regions: Tensor,
    words: Tensor,
    *,
    region_counts: Labels | None = None,
    word_counts: Labels | None = None,
    direction: Direction = "t2i",
    norm: Norm = "clipped_l2norm",
    smooth: float = 9.0,
    pool: PoolName = "lse",
    lse: float = 6.0,
) -> Tensor:
    """SCAN's score of regions, (images, places, size), and words, (texts, places, size), which it normalises.

    Places beyond the counts of an image or text are empty, and so are rows of zeros. The defaults are the paper's
    t2i model for Flickr30K; its i2t model has smooth 4 and lse 5.
    """
    settings = _settings(SCANSettings, direction=direction, norm=norm, smooth=smooth, pool=pool, lse=lse)
    sets = _sets(regions, words, region_counts, word_counts)
    with without_autocast(regions.device):
        return settings.rule.score(*sets, settings.direction)


def bfan_scores(
    regions: Tensor,
    words: Tensor,
    *,
    region_counts: Labels | None = None,
    word_counts: Labels | None = None,
    focal: Focal = "equal",
    smooth: float = 20.0,
) -> Tensor:
    """BFAN's score of regions, (images, places, size), and words, (texts, places, size), which it normalises.

    Places beyond the counts of an image or text are empty, and so are rows of zeros.
    """
    settings = _settings(BFANSettings, focal=focal, smooth=smooth)
    sets = _sets(regions, words, region_counts, word_counts)
    with without_autocast(regions.device):
        return settings.rule.score(*sets, "t2i", "i2t")


def _settings(kind: type[Kind], **options: Any) -> Kind:
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        raise ScoreError(first_error(error, kind)) from None


def _sets(
    regions: Tensor, words: Tensor, region_counts: Labels | None, word_counts: Labels | None
) -> tuple[Tensor, Tensor]:
    """Regions and words as unit vectors, with zeros in empty places."""
    _check_sides({"regions": regions, "words": words}, dimensions=3)
    return _unit_set("regions", regions, region_counts), _unit_set("words", words, word_counts)


def _unit_set(name: str, sets: Tensor, counts: Labels | None) -> Tensor:
    if not sets.isfinite().all():
        raise ScoreError(f"{name} contain values that are not finite; check what the model returns")
    units = normalize(at_least_float32(sets), dim=2)
    if counts is not None:
        numbers = integers(counts, len(sets), sets.device, f"the counts of {name}")
        if (numbers > sets.shape[1]).any():
            raise ScoreError(
                f"the counts of {name} go up to {int(numbers.max())}, but there are {sets.shape[1]} places"
            )
        is_there = torch.arange(sets.shape[1], device=sets.device) < numbers[:, None]  # (items, places)
        units = units * is_there[:, :, None]
    is_empty = ~present(units).any(1)
    if is_empty.any():
        raise ScoreError(f"{name}[{int(is_empty.nonzero()[0])}] is empty; each needs at least one vector that is not 0")
    return units


def _check_sides(sides: dict[str, Tensor], dimensions: int) -> None:
    """Raise a ScoreError unless both sides are floats with this many dimensions and vectors of the same size."""
    for name, side in sides.items():
        check_floats(name, side)
        if side.dim() != dimensions:
            shape = "(items, size)" if dimensions == 2 else "(items, places, size)"
            raise ScoreError(f"{name} of shape {tuple(side.shape)}; pass {shape}")
    (name, first), (other_name, second) = sides.items()
    check_device(other_name, second, first.device)
    if first.shape[-1] != second.shape[-1]:
        raise ScoreError(f"{name} of size {first.shape[-1]} and {other_name} of size {second.shape[-1]}; use one size")
