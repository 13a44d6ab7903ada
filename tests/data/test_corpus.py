from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Box, Corpus, Features, Phrase
from diptych.errors import DataError


def corpus(**columns: object) -> Corpus:
    known = {
        "name": "mine",
        "image_ids": ["a", "b", "c"],
        "image_groups": np.array([0, 1, 2]),
        "image_splits": np.array(["train", "test", "test"]),
        "texts": ["of b", "of a", "more of b", "of nobody"],
        "text_groups": np.array([1, 0, 1, 9]),
        "text_splits": np.array(["test", "train", "test", "test"]),
        "features": Features([np.arange(6, dtype=np.float32).reshape(3, 2)]),
        "boxes": [[Box(name, 0, 0, 1, 1)] for name in "abc"],
        "phrases": [[Phrase(text, "x", ("other",))] for text in ("of b", "of a", "more of b", "of nobody")],
        "region_boxes": Features([np.arange(24, dtype=np.float32).reshape(3, 2, 4)]),
        "text_ids": ["id of b", "id of a", "id more of b", "id of nobody"],
    }
    return Corpus(**{**known, **columns})


def columns_agree(part: Corpus) -> bool:
    numbers = ["abc".index(name) for name in part.image_ids]
    rows = np.arange(len(numbers))
    return (
        [box.chain for (box,) in part.boxes] == list(part.image_ids)
        and [phrase.text for (phrase,) in part.phrases] == list(part.texts)
        and [name.removeprefix("id ") for name in part.text_ids] == list(part.texts)
        and part.features[rows][:, 0].tolist() == [2 * number for number in numbers]
        and part.region_boxes[rows][:, 0, 0].tolist() == [8 * number for number in numbers]
    )


def test_all_columns_stay_columns_agree() -> None:
    whole = corpus()
    part = whole.take(np.array([2, 0]), np.array([3, 1, 1]))
    assert (part.image_ids, part.texts) == (["c", "a"], ["of nobody", "of a", "of a"])
    assert columns_agree(whole)
    assert columns_agree(part)
    test = whole.split("test")
    assert (test.image_ids, test.texts) == (["b", "c"], ["of b", "more of b", "of nobody"])
    assert columns_agree(test)
    matched = whole.matched()
    assert (matched.image_ids, matched.texts) == (["a", "b"], ["of b", "of a", "more of b"])
    assert columns_agree(matched)
    assert matched.matched() is matched


@pytest.mark.parametrize("column", ["boxes", "phrases", "region_boxes", "text_ids"])
def test_a_missing_column_is_missing_in_a_selection(column: str) -> None:
    part = corpus(**{column: None}).take(np.array([1]), np.array([0]))
    assert getattr(part, column) is None


@pytest.mark.parametrize(
    ("column", "rows", "message"),
    [
        ("boxes", [[]], "mine: a column has 1 rows, but there are 3 images"),
        ("phrases", [[]] * 3, "mine: a column has 3 rows, but there are 4 texts"),
        ("text_groups", np.zeros(2, np.int64), "mine: a column has 2 rows, but there are 4 texts"),
    ],
)
def test_a_column_of_another_length_is_refused(column: str, rows: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        corpus(**{column: rows})


def test_the_digest_knows_boxes_and_phrases() -> None:
    whole = corpus()
    assert whole.digest() == corpus(name="another", boxes=tuple(tuple(boxes) for boxes in whole.boxes)).digest()
    assert whole.digest() == corpus(text_ids=None).digest()  # runs were trained when texts had no ids
    moved = [[Box("a", 0, 0, 1, 0.5)], *whole.boxes[1:]]
    renamed = [[Phrase("of b", "y", ("other",))], *whole.phrases[1:]]
    others = [
        replace(whole, **change)
        for change in (
            {"boxes": None},
            {"phrases": None},
            {"boxes": moved},
            {"phrases": renamed},
            {"boxes": whole.boxes[::-1]},
        )
    ]
    assert len({one.digest() for one in (whole, *others)}) == 6


def test_the_digest_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = corpus().digest()
    for rows in (1, 2, 3):
        monkeypatch.setattr("diptych.data.corpus._HASHED_AT_ONCE", rows)
        assert corpus().digest() == whole


def test_the_digest_never_changes() -> None:
    """Runs store it: another digest would tell their owners that the data has changed."""
    assert corpus().digest() == "37067604ca1978471fc0c01044564f230c766aa04329bdfc9bf0621eaa3aa5e6"


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2)), max_size=8),
)
def test_one_region_per_image_is_read_from_any_part(lengths: list[int], wanted: list[tuple[int, int]]) -> None:
    """Rows in several parts, in another order; the two values of a region are its image's row and its own number."""
    count = sum(lengths)
    vectors = np.stack(np.broadcast_arrays(np.arange(count)[:, None], np.arange(3)), axis=2).astype(np.float16)
    order = np.random.default_rng(0).permutation(count)
    features = Features(np.split(vectors, np.cumsum(lengths)[:-1])).take(order)
    assert features.shape == (3, 2)
    images = np.array([image % count for image, _ in wanted] if count else [], np.int64)
    regions = np.array([region for _, region in wanted][: len(images)], np.int64)
    found = features.read_regions(images, regions)
    assert found.dtype == np.float32
    assert found.tolist() == np.stack([order[images], regions], axis=1).tolist()


def test_a_corpus_is_shown_by_its_sizes():
    corpus = Corpus.from_pairs(None, [["a", "b"], ["c"]], ["train", "test"], features=np.ones((2, 3)), name="mine")
    assert repr(corpus) == "Corpus('mine': 2 images, 3 texts; images: train 1, test 1)"
