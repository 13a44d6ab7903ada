"""Pretrained word vectors, read from a text file in the format of GloVe or word2vec (with a header), gzipped or not."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.errors import DataError, location
from diptych.progress import ProgressCallback
from diptych.text.vocabulary import Vocabulary

_HEADER = re.compile(rb"(\d{1,15}) ([1-9]\d{0,8})")
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_UNPRINTABLE = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_MAX_ROW_BYTES = 1 << 20  # a file that is not text may have no line ends
_ROWS_BETWEEN_REPORTS = 4096
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """One vector per id of a vocabulary; where `found` is false, the file has no vector and the row is zero."""

    vectors: NDArray[np.float32]  # (vocabulary, size)
    found: NDArray[np.bool_]  # (vocabulary,)


def read_word_vectors(
    path: Path, vocabulary: Vocabulary, size: int | None = None, progress: ProgressCallback | None = None
) -> WordVectors:
    """Read the vectors of a vocabulary's words, keeping nothing else in memory; the first vector of a word counts.

    `size`, if given, is the size that the vectors must have. `progress` receives the bytes read and the total.
    """
    ids = {word.encode("utf-8", "surrogatepass"): number for word, number in vocabulary.ids.items()}
    found = np.zeros(len(vocabulary), np.bool_)
    vectors: NDArray[np.float32] | None = None
    for row, word, numbers in _entries(path, size, progress):
        if vectors is None:
            vectors = np.zeros((len(vocabulary), numbers.count(b" ") + 1), np.float32)
        number = ids.get(word)
        if number is not None and not found[number]:
            vectors[number] = _parse(path, row, numbers)
            found[number] = True
    if vectors is None:
        raise DataError(f"{path}: has no word vectors; download or export it again")
    return WordVectors(vectors, found)


def keep_words_with_vectors(vocabulary: Vocabulary, vectors: WordVectors) -> tuple[Vocabulary, WordVectors]:
    """The vocabulary of the words that have a vector, and their vectors."""
    specials = len(vocabulary) - len(vocabulary.words)
    kept = np.flatnonzero(vectors.found[specials:])
    if not len(kept):
        raise DataError("none of the training words has a vector; use word vectors of the same language")
    rows = np.concatenate([np.arange(specials), specials + kept])
    words = tuple(vocabulary.words[row] for row in kept)
    counts = tuple(vocabulary.counts[row] for row in kept)
    return Vocabulary(words, counts, vocabulary.threshold), WordVectors(vectors.vectors[rows], vectors.found[rows])


def _entries(
    path: Path, required_size: int | None, progress: ProgressCallback | None
) -> Iterator[tuple[int, bytes, bytes]]:
    """The row number, word and numbers of each row; every row must have the same number of numbers."""
    declared = size = None
    count = 0
    for row, line in _rows(path, progress):
        header = _HEADER.fullmatch(line) if row == 1 else None
        if size is None:
            size = int(header[2]) if header else _numbers_at_end(line)
            if not size:
                raise _row_error(path, row, line, "not a word and its numbers, separated by spaces; export it so")
            if required_size not in (None, size):
                raise DataError(
                    f"{location(path, row)}: vectors of size {size}, not {required_size}; ask for size {size}"
                )
        if header:
            declared = int(header[1])
        else:
            yield row, *_split(path, row, line, size)
            count += 1
    if declared not in (None, count):
        raise DataError(f"{path}: {count} vectors, but its header says {declared}; is the file complete?")


def _rows(path: Path, progress: ProgressCallback | None) -> Iterator[tuple[int, bytes]]:
    """The rows that are not blank, with their numbers from 1, decompressed if needed."""
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"
            stream = io.BufferedReader(gzip.GzipFile(fileobj=file)) if zipped else file
            row = 0
            while line := stream.readline(_MAX_ROW_BYTES):
                row += 1
                if row == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if len(line) == _MAX_ROW_BYTES:
                    raise _row_error(path, row, line, "a row of more than a million bytes; is it a text file?")
                if line := line.rstrip(b" \r\n"):
                    yield row, line
                if progress and row % _ROWS_BETWEEN_REPORTS == 0:
                    progress(file.tell(), total)
    except (EOFError, zlib.error, gzip.BadGzipFile) as reason:
        raise DataError(f"{path}: not a complete gzip file ({reason}); download it again") from None
    except OSError as reason:
        raise DataError(f"{path}: cannot be read ({reason.strerror})") from None
    if progress:
        progress(total, total)


def _split(path: Path, row: int, line: bytes, size: int) -> tuple[bytes, bytes]:
    """Split a row into its word and its `size` numbers, from the right: some files have words with spaces."""
    spaces = line.count(b" ")
    if spaces == size:
        word = line.partition(b" ")[0]
    else:
        word = line.rsplit(b" ", size)[0]
        if spaces < size or any(map(_NUMBER.fullmatch, word.split(b" ")[1:])):
            has = _numbers_at_end(line)
            raise _row_error(path, row, line, f"{has} numbers instead of {size}; is the file complete?")
    return word, line[len(word) + 1 :]


def _parse(path: Path, row: int, numbers: bytes) -> NDArray[np.float64]:
    fields = numbers.split(b" ")
    try:
        values = np.array([float(field) for field in fields])
    except ValueError:
        bad = next(field for field in fields if not _is_number(field)).decode("utf-8", "backslashreplace")
        raise _row_error(path, row, numbers, f"{bad[:40]!r} is not a number; correct or remove the row") from None
    if not np.all(np.abs(values) <= _MAX_FLOAT32):  # NaN fails this, too
        raise DataError(f"{location(path, row)}: a number is not finite or too large; correct or remove the row")
    return values


def _numbers_at_end(line: bytes) -> int:
    """How many numbers a row ends with; the first field is the word, even if it looks like a number."""
    fields = line.split(b" ")[1:]
    return next((n for n, field in enumerate(reversed(fields)) if not _is_number(field)), len(fields))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _row_error(path: Path, row: int, line: bytes, message: str) -> DataError:
    """The error for a bad row, or a clearer one if the file is binary."""
    if _UNPRINTABLE.search(line):
        return DataError(f"{location(path, row)}: binary, not text; unpack it or export it as text")
    return DataError(f"{location(path, row)}: {message}")
