from __future__ import annotations

import re

import numpy as np
import pandas
import pytest
import torch

from diptych.errors import ScoreError
from diptych.evaluation.array_groups import read_groups

OK = np.array([0, 1, 1])


@pytest.mark.parametrize(
    "groups",
    [
        [7, 8, 7],
        (7, 8, 7),
        np.array([7, 8, 7], np.uint8),
        np.array([7, 8, 7], object),
        torch.tensor([7, 8, 7], dtype=torch.int32),
        pandas.Series([7, 8, 7]),
    ],
    ids=["list", "tuple", "array", "objects", "tensor", "series"],
)
def test_integers_of_any_kind_become_int64(groups):
    for labels in read_groups(groups, groups, 3, 3):
        assert labels.dtype == np.int64
        assert labels.tolist() == [7, 8, 7]


@pytest.mark.parametrize(
    "groups",
    [
        ["dog", np.str_("a"), "dog"],
        np.array(["dog", "a", "dog"]),
        np.array(["dog", "a", "dog"], object),
        pandas.Series(["dog", "a", "dog"]),
        pandas.Series(["dog", "a", "dog"], dtype="category"),
    ],
    ids=["list", "array", "objects", "series", "categories"],
)
def test_strings_stay_strings(groups):
    labels, _ = read_groups(groups, groups, 3, 3)
    assert labels.dtype.kind == "U"
    assert labels.tolist() == ["dog", "a", "dog"]


def test_missing_groups_are_row_numbers():
    assert [side.tolist() for side in read_groups(None, None, 3, 3)] == [[0, 1, 2], [0, 1, 2]]
    assert [side.tolist() for side in read_groups(None, [0, 1, 1, 2], 3, 4)] == [[0, 1, 2], [0, 1, 1, 2]]
    assert [side.tolist() for side in read_groups([0, 1, 1, 0], None, 4, 2)] == [[0, 1, 1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("image_groups", "text_groups", "images", "texts", "message"),
    [
        (
            *(None, None, 3, 15),
            "3 images and 15 texts without groups; give one group per row, for example "
            "text_groups=np.repeat(np.arange(3), 5) if texts 5 k to 5 k + 4 belong to image k",
        ),
        (
            *(None, None, 3, 14),
            "3 images and 14 texts without groups; give image_groups and text_groups, one group per row: "
            "equal groups are a positive pair",
        ),
        (
            *(None, None, 15, 3),
            "15 images and 3 texts without groups; give image_groups and text_groups, one group per row: "
            "equal groups are a positive pair",
        ),
        (OK, [0, 1], 3, 3, "text_groups: 2 groups for 3 texts; give one group per text"),
        ([], OK, 3, 3, "image_groups: 0 groups for 3 images; give one group per image"),
        (np.arange(4), OK, 3, 4, "image_groups: 4 groups for 3 images; are images and texts swapped?"),
        (OK[:, None], OK, 3, 3, "image_groups: shape (3, 1); give one group per image"),
        ([[1], [1, 2], [3]], OK, 3, 3, "image_groups: rows of different lengths; give one group per image"),
        (OK / 1, OK, 3, 3, "image_groups: float64; groups are integers or strings"),
        (OK, OK > 0, 3, 3, "text_groups: bool; groups are integers or strings"),
        (OK, [1, "a", 2], 3, 3, "text_groups: int and str; groups are integers or strings"),
        (OK, np.array([1, "a", 2], object), 3, 3, "text_groups: int and str; groups are integers or strings"),
        (OK, pandas.Series(["a", None, "b"]), 3, 3, "text_groups: float and str; groups are integers or strings"),
        (OK, [None, None, 2], 3, 3, "text_groups: NoneType and int; groups are integers or strings"),
        (
            *(["a", "b", "c"], OK, 3, 3),
            "image_groups are strings and text_groups are integers; name the groups of both alike",
        ),
    ],
)
def test_groups_that_cannot_be_used_are_errors(image_groups, text_groups, images, texts, message):
    with pytest.raises(ScoreError, match=f"^{re.escape(message)}$"):
        read_groups(image_groups, text_groups, images, texts)
