"""The groups of a caller's own arrays: integers or strings, one per row; equal groups are a positive pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from diptych.errors import ScoreError

Groups: TypeAlias = Sequence[int] | Sequence[str] | NDArray[Any] | Tensor

# Integers or strings: whatever ranks and mines only compares groups.
GroupLabels: TypeAlias = NDArray[Any]

_KINDS = {"i": "integers", "u": "integers", "U": "strings"}


def read_groups(
    image_groups: Groups | None, text_groups: Groups | None, images: int, texts: int
) -> tuple[GroupLabels, GroupLabels]:
    """The groups of the images and of the texts, checked; the groups of a side that is not given are its row numbers.

    >>> read_groups(None, [0, 0, 1], 2, 3)
    (array([0, 1]), array([0, 0, 1]))
    """
    if image_groups is None and text_groups is None and images != texts:
        raise ScoreError(f"{images} images and {texts} texts without groups; {_how_to_group(images, texts)}")
    labels = _labels("image", image_groups, images), _labels("text", text_groups, texts)
    lengths = tuple(map(len, labels))
    for side, labelled, rows in zip(("image", "text"), lengths, (images, texts), strict=True):
        if labelled != rows:
            swapped = images != texts and lengths == (texts, images)
            hint = "; are images and texts swapped?" if swapped else f"; give one group per {side}"
            raise ScoreError(f"{side}_groups: {labelled} groups for {rows} {side}s{hint}")
    first, second = (_KINDS[side.dtype.kind] for side in labels)
    if first != second:
        raise ScoreError(f"image_groups are {first} and text_groups are {second}; name the groups of both alike")
    return labels


def _labels(side: str, groups: Groups | None, rows: int) -> GroupLabels:
    if groups is None:
        return np.arange(rows)
    try:
        labels = np.asarray(groups.cpu() if isinstance(groups, Tensor) else groups)
    except ValueError:
        raise ScoreError(f"{side}_groups: rows of different lengths; give one group per {side}") from None
    if labels.ndim != 1:
        raise ScoreError(f"{side}_groups: shape {labels.shape}; give one group per {side}")
    if not len(labels):
        return np.arange(0)
    listed = isinstance(groups, list | tuple) or labels.dtype == object  # such as a column of a DataFrame
    types = set(map(type, groups)) if listed else set()
    # integers and strings in one list would become strings: 1 and "1" are not meant to be one group
    mixed = len({issubclass(each, str) for each in types}) > 1
    if labels.dtype == object and not mixed:
        labels = np.array(labels.tolist())
    if labels.dtype.kind not in _KINDS or mixed:
        kinds = " and ".join(sorted(each.__name__ for each in types)) or labels.dtype
        raise ScoreError(f"{side}_groups: {kinds}; groups are integers or strings")
    return labels if labels.dtype.kind == "U" else labels.astype(np.int64)


def _how_to_group(images: int, texts: int) -> str:
    """How to say which of them belong together, by example if the numbers suggest one."""
    each, left = divmod(texts, images) if images else (0, 1)
    if each and not left:
        example = f"text_groups=np.repeat(np.arange({images}), {each}) if texts {each} k to {each} k + {each - 1}"
        return f"give one group per row, for example {example} belong to image k"
    return "give image_groups and text_groups, one group per row: equal groups are a positive pair"
