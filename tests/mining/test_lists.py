"""Lists on disk: saving and loading, refusals, and the message about too few negatives."""

import numpy as np
import pytest
import torch

from diptych.errors import RunError
from diptych.mining.hardness import Hardness
from diptych.mining.lists import HardNegativeLists, ListsHeader, lists_file, weights_digest
from diptych.models.storage import save_tensors

HEADER = ListsHeader(
    weights="w",
    corpus="c",
    splits=("train", "restval"),
    model="vse",
    top_texts=3,
    top_images=4,
    skipped={"b": "b.jpg: broken"},
    hardness=Hardness(positive=0.5, first_text=0.4, last_text=0.1, first_image=0.3, last_image=0.2),
)


@pytest.fixture
def lists():
    texts = np.array([[2, 3, -1], [0, 1, -1]], np.int32)
    images = np.array([[1, -1], [1, -1], [0, -1], [0, -1]], np.int32)
    return HardNegativeLists(texts, images, HEADER)


def test_lists_are_saved_and_loaded(lists, tmp_path):
    lists.save(tmp_path / "lists.safetensors")
    again = HardNegativeLists.load(tmp_path / "lists.safetensors")
    np.testing.assert_array_equal(again.texts, lists.texts)
    np.testing.assert_array_equal(again.images, lists.images)
    assert (again.texts.dtype, again.images.dtype) == (np.int32, np.int32)
    assert again.header == HEADER


def test_truncated_lists_are_the_beginning(lists):
    shorter = lists.truncate(2, 1)
    assert shorter.texts.tolist() == [[2, 3], [0, 1]]
    assert shorter.images.tolist() == [[1], [1], [0], [0]]
    assert (shorter.header.top_texts, shorter.header.top_images) == (2, 1)
    assert shorter.shortage is None
    assert lists.truncate(9, 9).header == HEADER


def test_fewer_negatives_than_requested_are_reported(lists):
    assert lists.shortage == (
        "fewer negatives than requested: the shortest list has 2 texts instead of 3, 1 images instead of 4"
    )


def test_lists_of_other_data_or_weights_are_refused(lists, tmp_path):
    lists.check("c", "w", tmp_path)
    lists.check("c", None, tmp_path)
    with pytest.raises(RunError, match=r"^lists: mined on other data \(its train\+restval\); mine this data"):
        lists.check("other", "w", "lists")
    with pytest.raises(
        RunError,
        match=r"^lists: mined by another run, or by weights that the run no longer has.* `diptych mine RUN DATA`$",
    ):
        lists.check("c", "other", "lists")


def int32(rows):
    return torch.tensor(rows, dtype=torch.int32)


TEXTS, IMAGES = [[2, 3, -1], [0, 1, -1]], [[1, -1], [1, -1], [0, -1], [0, -1]]


@pytest.mark.parametrize(
    ("tensors", "about", "expected"),
    [
        ({"texts": int32(TEXTS)}, HEADER, "not a file of lists"),
        ({"texts": int32(TEXTS), "images": int32(IMAGES)}, None, "not a file of lists"),
        ({"texts": int32(TEXTS), "images": int32(IMAGES)}, HEADER.model_copy(update={"kind": "x"}), "not a file of"),
        ({"texts": int32([[2, 4, -1], [0, 1, -1]]), "images": int32(IMAGES)}, HEADER, "do not fit"),
        ({"texts": int32([[2, 3, -2], [0, 1, -1]]), "images": int32(IMAGES)}, HEADER, "do not fit"),
        ({"texts": int32(TEXTS), "images": int32([[2, -1], [1, -1], [0, -1], [0, -1]])}, HEADER, "do not fit"),
        ({"texts": int32([[2, 3], [0, 1]]), "images": int32(IMAGES)}, HEADER, "do not fit"),
        ({"texts": int32(TEXTS).long(), "images": int32(IMAGES)}, HEADER, "do not fit"),
        ({"texts": int32(TEXTS).view(-1), "images": int32(IMAGES)}, HEADER, "do not fit"),
    ],
    ids=["one side", "about", "kind", "text beyond", "below -1", "image beyond", "width", "dtype", "flat"],
)
def test_a_file_of_something_else_is_refused(tmp_path, tensors, about, expected):
    file = tmp_path / "lists.safetensors"
    save_tensors(file, tensors, {"something": "else"} if about is None else about.model_dump(mode="json"))
    with pytest.raises(RunError, match=rf"lists.safetensors: .*{expected}"):
        HardNegativeLists.load(file)


def test_a_missing_or_truncated_file_is_refused(lists, tmp_path):
    file = tmp_path / "lists.safetensors"
    with pytest.raises(RunError, match="no such file; mine the lists with `diptych mine RUN DATA`"):
        HardNegativeLists.load(file)
    lists.save(file)
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(RunError, match="damaged or truncated"):
        HardNegativeLists.load(file)


def test_weights_are_identified_by_the_hash_of_their_file(tmp_path):
    with pytest.raises(RunError, match=r"weights\.safetensors: no such file"):
        weights_digest(tmp_path)
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "weights.safetensors").write_bytes(b"weights")
    assert weights_digest(tmp_path) == "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c"


def test_lists_of_a_run_or_a_file(tmp_path):
    assert lists_file(tmp_path) == tmp_path / "lists.safetensors"
    assert lists_file(tmp_path / "teacher.safetensors") == tmp_path / "teacher.safetensors"
