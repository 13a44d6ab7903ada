from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.formats.precomputed import read, recognises
from diptych.errors import DataError


def part(folder: Path, name: str, shape: tuple[int, ...], captions: list[str], ids: list[str] | None = None) -> None:
    seed = sum(name.encode())
    np.save(folder / f"{name}_ims.npy", np.random.default_rng(seed).normal(size=shape).astype(np.float32))
    (folder / f"{name}_caps.txt").write_text("".join(f"{line}\n" for line in captions), encoding="utf-8")
    if ids is not None:
        (folder / f"{name}_ids.txt").write_text("".join(f"{line}\n" for line in ids), encoding="utf-8")


def texts_of(corpus: Corpus) -> dict[str, list[str]]:
    return {
        name: [text for text, other in zip(corpus.texts, corpus.text_groups, strict=True) if other == group]
        for name, group in zip(corpus.image_ids, corpus.image_groups, strict=True)
    }


def features_of(corpus: Corpus) -> np.ndarray:
    assert corpus.features is not None
    return corpus.features[np.arange(len(corpus.image_ids))]


def messages(corpus: Corpus) -> list[tuple[str, int | None, str]]:
    return [(Path(problem.file).name, problem.row, problem.message) for problem in corpus.problems]


def test_parts_become_splits_and_dev_is_val(tmp_path: Path) -> None:
    part(tmp_path, "train", (3, 4), ["a1", "a2", "b1", "b2", "c1", "c2"])
    part(tmp_path, "dev", (2, 4), ["d", "e"])
    part(tmp_path, "test", (1, 4), ["f1", "f2", "f3"])
    assert recognises(Address(tmp_path))
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {
        "train/0": ["a1", "a2"],
        "train/1": ["b1", "b2"],
        "train/2": ["c1", "c2"],
        "dev/0": ["d"],
        "dev/1": ["e"],
        "test/0": ["f1", "f2", "f3"],
    }
    assert corpus.image_splits.tolist() == ["train"] * 3 + ["val"] * 2 + ["test"]
    assert corpus.text_splits.tolist() == ["train"] * 6 + ["val"] * 2 + ["test"] * 3
    stored = [np.load(tmp_path / f"{name}_ims.npy") for name in ("train", "dev", "test")]
    np.testing.assert_array_equal(features_of(corpus), np.concatenate(stored))
    np.testing.assert_array_equal(features_of(corpus.split("val")), stored[1])
    assert (corpus.pictures, corpus.problems, corpus.name) == (None, (), tmp_path.name)


def test_regions_stay_on_disk_until_asked_for(tmp_path: Path) -> None:
    part(tmp_path, "train", (4, 3, 5), [str(i) for i in range(8)])
    corpus = read(Address(tmp_path))
    assert corpus.features is not None
    assert corpus.features.shape == (3, 5)
    assert all(isinstance(stored, np.memmap) for stored in corpus.features._parts)
    np.testing.assert_array_equal(features_of(corpus), np.load(tmp_path / "train_ims.npy"))


def test_other_precisions_become_float32(tmp_path: Path) -> None:
    part(tmp_path, "train", (2, 4), ["a", "b"])
    np.save(tmp_path / "train_ims.npy", np.asfortranarray(np.arange(8, dtype=np.float64).reshape(2, 4)))
    stored = features_of(read(Address(tmp_path)))
    assert (stored.dtype, stored.tolist()) == (np.float32, [[0, 1, 2, 3], [4, 5, 6, 7]])


def test_testall_is_test_where_there_is_no_test_or_where_asked_for(tmp_path: Path) -> None:
    part(tmp_path, "train", (1, 4), ["a"])
    part(tmp_path, "testall", (2, 4), ["all one", "all two"])
    assert texts_of(read(Address(tmp_path)).split("test")) == {"testall/0": ["all one"], "testall/1": ["all two"]}
    part(tmp_path, "test", (1, 4), ["one"])
    both = read(Address(tmp_path))
    assert texts_of(both.split("test")) == {"test/0": ["one"]}
    assert both.problems == ()  # both beside each other are the layout's usual form
    asked = read(Address(tmp_path, "testall"))
    assert texts_of(asked.split("test")) == {"testall/0": ["all one"], "testall/1": ["all two"]}
    assert asked.problems == ()
    assert read(Address(tmp_path, "test")).problems == ()
    for wrong in ("train", "tset", ""):
        with pytest.raises(DataError, match=f"no {wrong or 'train'}.*it has train, test, testall"):
            read(Address(tmp_path, wrong))


@settings(deadline=None, max_examples=30)
@given(
    images=st.integers(1, 6),
    each=st.integers(1, 6),
    broken=st.sets(st.integers(0, 35)),
    ids=st.sampled_from(["none", "an image", "a caption"]),
)
def test_each_image_keeps_its_own_captions(
    tmp_path_factory: pytest.TempPathFactory, images: int, each: int, broken: set[int], ids: str
) -> None:
    folder = tmp_path_factory.mktemp("p")
    captions = ["" if i in broken else f"caption {i}" for i in range(images * each)]
    repeats = {"none": None, "an image": 1, "a caption": each}[ids]
    names = None if repeats is None else [f"id{i}" for i in range(images) for _ in range(repeats)]
    part(folder, "train", (images, 2), captions, names)
    if not any(captions):
        with pytest.raises(DataError, match=r"no usable text in it; first problem: .*train_caps.txt:1: the text is"):
            read(Address(folder))
        return
    corpus = read(Address(folder))
    assert texts_of(corpus) == {
        f"train/{'' if names is None else 'id'}{i}": list(filter(None, captions[i * each : (i + 1) * each]))
        for i in range(images)
    }
    empty = [i + 1 for i, caption in enumerate(captions) if not caption]
    assert messages(corpus) == [("train_caps.txt", row, "the text is empty") for row in empty]


def test_rows_repeated_for_each_caption_are_one_image(tmp_path: Path) -> None:
    part(tmp_path, "train", (6, 20), ["a1", "a2", "b1", "c1", "c2", "c3"])
    vectors = np.load(tmp_path / "train_ims.npy")
    vectors[2, :10] = vectors[1, :10]  # alike at first sight only
    np.save(tmp_path / "train_ims.npy", vectors[[0, 0, 1, 2, 2, 2]])
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"train/0": ["a1", "a2"], "train/2": ["b1"], "train/3": ["c1", "c2", "c3"]}
    np.testing.assert_array_equal(features_of(corpus), vectors[:3])
    assert messages(corpus) == [
        ("train_ims.npy", 2, "3 rows repeat the row above them; they are read as one image with several texts")
    ]


def test_a_repeated_id_is_left_out_with_its_captions(tmp_path: Path) -> None:
    part(tmp_path, "train", (3, 4), ["a1", "a2", "b1", "b2", "c1", "c2"], ["x", "x", "y"])
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"train/x": ["a1", "a2"], "train/y": ["c1", "c2"]}
    np.testing.assert_array_equal(features_of(corpus), np.load(tmp_path / "train_ims.npy")[[0, 2]])
    assert messages(corpus) == [("train_ids.txt", 2, "id 'x' is already at row 1; left out with its captions")]


def test_ids_that_do_not_fit_are_not_used(tmp_path: Path) -> None:
    part(tmp_path, "train", (2, 4), ["a1", "a2", "b1", "b2"], ["x", "y", "z"])
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"train/0": ["a1", "a2"], "train/1": ["b1", "b2"]}
    assert messages(corpus) == [("train_ids.txt", None, "3 ids for 2 images and 4 captions; the ids are not used")]


def test_only_newlines_end_captions(tmp_path: Path) -> None:
    part(tmp_path, "train", (3, 4), [])
    captions = "\ufeffone\u2028line\r\n".encode() + b"caf\xe9\n" + b"a\x0cb\rc\n\n\n"
    (tmp_path / "train_caps.txt").write_bytes(captions)
    corpus = read(Address(tmp_path))
    assert texts_of(corpus) == {"train/0": ["one line"], "train/1": [], "train/2": ["a b c"]}
    assert messages(corpus) == [("train_caps.txt", 2, "the text is not valid UTF-8; write it in UTF-8")]


def test_counts_that_do_not_divide_name_both_files(tmp_path: Path) -> None:
    part(tmp_path, "train", (3, 4), ["a", "b", "c", "d"])
    with pytest.raises(DataError, match=r"train_ims\.npy: 3 images, but .*train_caps\.txt has 4 captions"):
        read(Address(tmp_path))
    part(tmp_path, "train", (3, 4), [])
    with pytest.raises(DataError, match=r"3 images, but .*train_caps\.txt has 0 captions"):
        read(Address(tmp_path))


def test_broken_arrays(tmp_path: Path) -> None:
    part(tmp_path, "train", (2, 4), ["a", "b"])
    file = tmp_path / "train_ims.npy"
    whole = file.read_bytes()

    def reason() -> str:
        with pytest.raises(DataError) as caught:
            read(Address(tmp_path))
        assert str(caught.value).startswith(f"{file}: ")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    for content in (b"", b"nonsense", whole[:20], whole[:-4]):
        file.write_bytes(content)
        assert "not a complete npy array" in reason()
    np.save(file, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    assert "not a complete npy array" in reason()
    with file.open("wb") as opened:
        np.savez(opened, a=np.zeros(3))
    assert "an npz archive" in reason()
    np.save(file, np.zeros((2, 4), np.int64))
    assert "not an array of floating-point numbers" in reason()
    for shape in ((2,), (2, 3, 4, 5), (0, 4), (2, 0)):
        np.save(file, np.zeros(shape, np.float32))
        assert f"an array of shape {shape}" in reason()


def test_parts_of_different_shapes(tmp_path: Path) -> None:
    part(tmp_path, "train", (2, 4), ["a", "b"])
    part(tmp_path, "dev", (2, 5), ["a", "b"])
    with pytest.raises(DataError, match=r"dev_ims\.npy: an image has the shape \(5,\), not \(4,\) as in train_ims"):
        read(Address(tmp_path))


def test_missing_files(tmp_path: Path) -> None:
    assert not recognises(Address(tmp_path))
    with pytest.raises(DataError, match=r"no train_ims\.npy in it; it has no features"):
        read(Address(tmp_path))
    part(tmp_path, "train", (2, 4), ["a", "b"])
    (tmp_path / "train_caps.txt").unlink()
    with pytest.raises(DataError, match=r"train_caps\.txt: no such file"):
        read(Address(tmp_path))


RELATIVE = np.array([[[0, 0, 1, 1], [0.1, 0.2, 0.5, 0.9]], [[0.25, 0, 0.5, 0.5], [0, 0, 0, 0]]], np.float32)


def boxes_of(corpus: Corpus) -> np.ndarray:
    assert corpus.region_boxes is not None
    return corpus.region_boxes[np.arange(len(corpus.image_ids))]


def test_relative_boxes_are_read_with_the_regions(tmp_path: Path) -> None:
    part(tmp_path, "train", (2, 2, 5), ["a", "b"])
    part(tmp_path, "dev", (1, 2, 5), ["c"])
    np.save(tmp_path / "train_boxes.npy", RELATIVE)
    corpus = read(Address(tmp_path))
    assert corpus.problems == ()
    np.testing.assert_array_equal(boxes_of(corpus), [*RELATIVE, np.zeros((2, 4))])  # dev has none
    np.testing.assert_array_equal(boxes_of(corpus.take(np.array([1]), np.array([1]))), RELATIVE[1:])
    assert boxes_of(corpus.split("val")).tolist() == [[[0] * 4] * 2]


@pytest.mark.parametrize("kind", [np.int64, np.float16, np.float64])
def test_boxes_in_pixels_are_made_relative_by_the_photos_sizes(tmp_path: Path, kind: type) -> None:
    part(tmp_path, "train", (2, 2, 5), ["a", "b"])
    sizes = np.array([[100, 50], [200, 400]])
    np.save(tmp_path / "train_boxes.npy", (RELATIVE * np.tile(sizes, 2)[:, None]).round().astype(kind))
    np.save(tmp_path / "train_sizes.npy", sizes)
    corpus = read(Address(tmp_path))
    assert corpus.problems == ()
    np.testing.assert_allclose(boxes_of(corpus), RELATIVE, atol=1e-6)


def test_boxes_follow_their_images_where_rows_are_repeated_or_left_out(tmp_path: Path) -> None:
    part(tmp_path, "train", (5, 2, 3), list("abcde"), ["x", "x", "y", "z", "y"])
    vectors = np.load(tmp_path / "train_ims.npy")
    vectors[1] = vectors[0]  # a row a caption: the second is the first's
    np.save(tmp_path / "train_ims.npy", vectors)
    boxes = np.stack([np.full((2, 4), row / 10, np.float32) for row in range(5)])
    np.save(tmp_path / "train_boxes.npy", boxes)
    corpus = read(Address(tmp_path))
    assert corpus.image_ids == ["train/x", "train/y", "train/z"]
    np.testing.assert_array_equal(boxes_of(corpus), boxes[[0, 2, 3]])


@pytest.mark.parametrize(
    ("shape", "boxes", "sizes", "words"),
    [
        (
            (2, 2, 5),
            RELATIVE * 100,
            None,
            "boxes in pixels need the width and height of each photo in train_sizes",
        ),
        ((2, 2, 5), RELATIVE * 100, [[100, 50]], "train_sizes.npy has the shape (1, 2), but the features need (2, 2)"),
        ((2, 2, 5), RELATIVE * 100, [[100, 0], [100, 50]], "a photo without width or height in train_sizes.npy"),
        ((2, 2, 5), RELATIVE * 100, [[50, 50], [50, 50]], "boxes that leave their photos"),
        ((2, 2, 5), RELATIVE[:, :, ::-1] / 2, None, "right or bottom lies before"),
        ((2, 2, 5), RELATIVE[:1], None, "train_boxes.npy has the shape (1, 2, 4), but the features need (2, 2, 4)"),
        ((2, 2, 5), RELATIVE * np.nan, None, "train_boxes.npy holds numbers that are not finite"),
        ((2, 2, 5), RELATIVE.astype("U"), None, "not numbers"),
        ((2, 5), RELATIVE, None, "an image has one vector and no regions"),
    ],
    ids=["pixels", "other sizes", "empty photo", "outside", "turned", "shape", "nan", "words", "pooled"],
)
def test_boxes_that_cannot_be_used_are_a_problem(
    tmp_path: Path, shape: tuple[int, ...], boxes: np.ndarray, sizes: list[list[int]] | None, words: str
) -> None:
    part(tmp_path, "train", shape, ["a", "b"])
    np.save(tmp_path / "train_boxes.npy", boxes)
    if sizes is not None:
        np.save(tmp_path / "train_sizes.npy", np.array(sizes))
    corpus = read(Address(tmp_path))
    assert corpus.region_boxes is None
    (problem,) = messages(corpus)
    assert problem[:2] == ("train_boxes.npy", None)
    assert words in problem[2]
    assert problem[2].endswith("; the boxes are not used")


def test_damaged_boxes_are_a_problem(tmp_path: Path) -> None:
    part(tmp_path, "train", (2, 2, 5), ["a", "b"])
    for content in (b"", b"no array"):
        (tmp_path / "train_boxes.npy").write_bytes(content)
        (problem,) = messages(read(Address(tmp_path)))
        assert "not a complete npy array of numbers" in problem[2]
