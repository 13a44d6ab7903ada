from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.text.tokenisers.token_table import SPECIALS
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import WordVectors, keep_words_with_vectors, read_word_vectors

WORDS = Vocabulary(("dog", "cat", "a b", "café", "x\u00a0y", "5"), (6, 5, 4, 3, 2, 1), 1)  # ids from 4 on
GLOVE = "the 1 2 3\ndog 0.5 -1.5e-1 .25\nzebra 1 2 3\ncafé 7 8 9\ndog 9 9 9\n"


def write(folder: Path, content: str | bytes, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_reads_the_glove_form_and_keeps_the_first_of_a_word(tmp_path: Path) -> None:
    read = read_word_vectors(write(tmp_path, GLOVE), WORDS)
    assert read.vectors.dtype == np.float32
    assert read.vectors.shape == (10, 3)
    assert read.found.tolist() == [False] * 4 + [True, False, False, True, False, False]
    np.testing.assert_array_equal(read.vectors[4], np.array([0.5, -0.15, 0.25], np.float32))
    np.testing.assert_array_equal(read.vectors[7], [7, 8, 9])
    assert not read.vectors[~read.found].any()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "5 3\n" + text,
        lambda text: text.removesuffix("\n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", " \n"),
        lambda text: text + "\n\n",
        lambda text: "\ufeff" + text,
        lambda text: "\ufeff5 3\n" + text,
    ],
    ids=[
        "header",
        "no last line end",
        "dos",
        "word2vec's last space",
        "blank end",
        "mark",
        "mark and header",
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_other_forms_read_the_same(tmp_path: Path, change: Callable[[str], str], zipped: bool) -> None:
    expected = read_word_vectors(write(tmp_path, GLOVE), WORDS)
    content = change(GLOVE).encode()
    path = write(tmp_path, gzip.compress(content) if zipped else content, "other.txt.gz" if zipped else "other.txt")
    read = read_word_vectors(path, WORDS, size=3)
    np.testing.assert_array_equal(read.vectors, expected.vectors)
    np.testing.assert_array_equal(read.found, expected.found)


def test_words_may_hold_spaces_and_look_like_numbers(tmp_path: Path) -> None:
    text = "a b 1 2 3\n. . . 1 2 3\n5 4 5 6\nx\u00a0y 7 8 9\nto infinity 1 2 3\n 1 2 3\n"
    read = read_word_vectors(write(tmp_path, text), WORDS)
    assert np.flatnonzero(read.found).tolist() == [6, 8, 9]
    np.testing.assert_array_equal(read.vectors[[6, 8, 9]], [[1, 2, 3], [7, 8, 9], [4, 5, 6]])


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
TABLES = st.integers(1, 5).flatmap(
    lambda size: st.lists(
        st.tuples(
            st.sampled_from(["dog", "cat", "a b", "owl", "café", "5"]),
            st.lists(FINITE, min_size=size, max_size=size),
        ),
        min_size=1,
    )
)


@given(TABLES, st.booleans())
def test_any_table_comes_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, list[float]]], header: bool
) -> None:
    size = len(table[0][1])
    rows = [" ".join([word, *map(repr, numbers)]) for word, numbers in table]
    if header:
        rows.insert(0, f"{len(table)} {size}")
    path = write(tmp_path_factory.mktemp("vectors"), "\n".join(rows) + "\n")
    read = read_word_vectors(path, WORDS)
    first = dict(reversed(table))
    for word, number in WORDS.ids.items():
        assert read.found[number] == (word in first)
        np.testing.assert_array_equal(read.vectors[number], np.array(first.get(word, [0] * size), np.float32))


@pytest.mark.parametrize(
    ("content", "row", "message"),
    [
        ("", None, "has no word vectors"),
        ("\n\n", None, "has no word vectors"),
        ("0 3\n", None, "has no word vectors"),
        ("dog\n", 1, "not a word and its numbers"),
        ("dog cat owl\n", 1, "not a word and its numbers"),
        ("the 1 2 3\ndog 1 2\n", 2, "2 numbers instead of 3; is the file complete?"),
        ("the 1 2 3\nowl 1 2\n", 2, "2 numbers instead of 3"),
        ("the 1 2 3\nowl\n", 2, "0 numbers instead of 3"),
        ("the 1 2 3\ndog 1 2 3 4\n", 2, "4 numbers instead of 3"),
        ("the 1 2 3\nowl 1 2 3 4\n", 2, "4 numbers instead of 3"),
        ("the 1 x 3\ndog 1 2 3\n", 1, "numbers instead of 1"),
        ("2 4\nthe 1 2 3\ndog 1 2 3\n", 2, "3 numbers instead of 4"),
        ("2 999999999\nthe 1 2 3\n", 2, "3 numbers instead of 999999999"),
        ("the 1 2 3\ndog 1 - 3\n", 2, "'-' is not a number"),
        ("the 1 2 3\n\ndog 1  3\n", 3, "'' is not a number"),
        ("the 1 2 3\ndog 1 nan 3\n", 2, "not finite"),
        ("dog 1 nan 3\n", 1, "not finite"),
        ("the 1 2 3\ndog 1 -inf 3\n", 2, "not finite"),
        ("the 1 2 3\ndog 1 2 1e39\n", 2, "too large"),
        ("3 3\nthe 1 2 3\ndog 1 2 3\n", None, "2 vectors, but its header says 3; is the file complete?"),
        ("1 3\nthe 1 2 3\ndog 1 2 3\n", None, "2 vectors, but its header says 1"),
        (b"PK\x03\x04\x00\x00 dog", 1, "binary, not text; unpack it"),
        (b"2 3\ndog \x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\n", 2, "binary, not text"),
        (b"\x00" * (1 << 20), 1, "binary, not text"),
        (b"dog 1" * (1 << 18), 1, "more than a million bytes"),
        (gzip.compress(GLOVE.encode(), mtime=0)[:-9], None, "not a complete gzip file"),
        (b"\x1f\x8b\x08 no gzip at all", None, "not a complete gzip file"),
    ],
)
def test_a_fault_names_its_file_and_row(tmp_path: Path, content: str | bytes, row: int | None, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as error:
        read_word_vectors(path, WORDS)
    where = str(path) if row is None else f"{path}:{row}"
    assert str(error.value).startswith(f"{where}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("header", ["", "5 3\n"])
def test_another_size_than_asked_for_is_an_error(tmp_path: Path, header: str) -> None:
    with pytest.raises(DataError, match=r"vectors\.txt:1: vectors of size 3, not 300; ask for size 3"):
        read_word_vectors(write(tmp_path, header + GLOVE), WORDS, size=300)


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(DataError, match="cannot be read"):
            read_word_vectors(path, WORDS)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp(), content, "any.txt")
    try:
        read = read_word_vectors(path, WORDS)
    except DataError as error:
        assert "any.txt" in str(error)  # noqa: PT017 (some of these files are read)
    else:
        assert len(read.vectors) == len(read.found) == len(WORDS)


@pytest.mark.parametrize("zipped", [False, True])
def test_progress_rises_to_the_whole_file(tmp_path: Path, zipped: bool) -> None:
    content = "".join(f"word{number} 1 2 3\n" for number in range(20_000)).encode()
    path = write(tmp_path, gzip.compress(content) if zipped else content)
    reports: list[tuple[int, int]] = []
    read_word_vectors(path, WORDS, progress=lambda done, total: reports.append((done, total)))
    done = [report[0] for report in reports]
    assert len(done) > 3
    assert done == sorted(done)
    assert done[-2] > path.stat().st_size / 2
    assert reports[-1] == (path.stat().st_size, path.stat().st_size)
    assert {total for _, total in reports} == {path.stat().st_size}


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"word{number} {'0.25 ' * 100}\n" for number in range(10_000)))
    tracemalloc.start()
    read_word_vectors(path, WORDS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 5_000_000
    assert peak < 500_000


@given(st.lists(st.booleans(), min_size=6, max_size=6).filter(any), st.integers(0, 2**32 - 1))
def test_only_words_with_a_vector_are_kept(found: list[bool], seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((len(WORDS), 2)).astype(np.float32)
    before = WordVectors(rows, np.array([False] * len(SPECIALS) + found))
    rows[~before.found] = 0
    vocabulary, after = keep_words_with_vectors(WORDS, before)
    kept = [word for word, has in zip(WORDS.words, found, strict=True) if has]
    assert list(vocabulary.words) == kept
    assert vocabulary.threshold == WORDS.threshold
    assert (
        dict(zip(vocabulary.words, vocabulary.counts, strict=True)).items()
        <= dict(zip(WORDS.words, WORDS.counts, strict=True)).items()
    )
    assert after.vectors.shape == (len(SPECIALS) + len(kept), 2)
    assert after.found.tolist() == [False] * len(SPECIALS) + [True] * len(kept)
    for word in kept:
        old, new = (len(SPECIALS) + each.words.index(word) for each in (WORDS, vocabulary))
        np.testing.assert_array_equal(after.vectors[new], rows[old])
    assert not after.vectors[: len(SPECIALS)].any()


def test_a_word_without_a_vector_is_unknown(tmp_path: Path) -> None:
    vocabulary, _ = keep_words_with_vectors(WORDS, read_word_vectors(write(tmp_path, GLOVE), WORDS))
    assert vocabulary.words == ("dog", "café")
    table = vocabulary.encode_all(["dog cat café"])
    assert table.flat.tolist() == [1, 4, 3, 5, 2]
    assert vocabulary.digest != WORDS.digest


def test_no_word_with_a_vector_is_an_error() -> None:
    nothing = WordVectors(np.zeros((len(WORDS), 2), np.float32), np.zeros(len(WORDS), bool))
    with pytest.raises(DataError, match=r"^none of the training words has a vector; use word vectors"):
        keep_words_with_vectors(WORDS, nothing)
