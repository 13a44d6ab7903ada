"""Pretrained word vectors from a text file, of GloVe's form or word2vec's with its header, gzipped or not."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.errors import DataError, location
from diptych.text.vocabulary import Vocabulary

Progress = Callable[[int, int], None]

_HEADER = re.compile(rb"(\d{1,15}) ([1-9]\d{0,8})")
_DIGITS = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_UNPRINTABLE = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_LONGEST_ROW = 1 << 20  # bytes; a file that is no text may have no line ends
_ROWS_BETWEEN_REPORTS = 4096
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A vector for each id of a vocabulary; where `found` is false the file has none and the row is zero."""

    vectors: NDArray[np.float32]  # (vocabulary, size)
    found: NDArray[np.bool_]  # (vocabulary,)


def read_word_vectors(
    path: Path, vocabulary: Vocabulary, size: int | None = None, progress: Progress | None = None
) -> WordVectors:
    """Read the vectors of a vocabulary's words, the first of each, and hold nothing else in memory.

    `size` is what the file must have, where given; `progress` is told the bytes read and the bytes in all.
    The numbers of words outside the vocabulary are counted but not parsed.
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
        raise DataError(f"{path}: holds no word vectors; download or export it again")
    return WordVectors(vectors, found)


def keep_words_with_vectors(vocabulary: Vocabulary, words: WordVectors) -> tuple[Vocabulary, WordVectors]:
    """The vocabulary of those words that have a vector, and their vectors."""
    specials = len(vocabulary) - len(vocabulary.words)
    kept = np.flatnonzero(words.found[specials:])
    if not len(kept):
        raise DataError("none of the training words has a vector; name word vectors of their language")
    rows = np.concatenate([np.arange(specials), specials + kept])
    names = tuple(vocabulary.words[row] for row in kept)
    counts = tuple(vocabulary.counts[row] for row in kept)
    fewer = Vocabulary(names, counts, vocabulary.threshold)
    return fewer, WordVectors(words.vectors[rows], words.found[rows])


def _entries(path: Path, wanted: int | None, progress: Progress | None) -> Iterator[tuple[int, bytes, bytes]]:
    """Each row's number, its word and its numbers, of which every row has equally many."""
    promised = size = None
    count = 0
    for row, line in _rows(path, progress):
        header = _HEADER.fullmatch(line) if row == 1 else None
        if size is None:
            size = int(header[2]) if header else _numbers_at_end(line)
            if not size:
                raise _wrong(path, row, line, "not a word and its numbers, parted by spaces; export it so")
            if wanted not in (None, size):
                raise DataError(f"{location(path, row)}: vectors of size {size}, not {wanted}; ask for size {size}")
        if header:
            promised = int(header[1])
        else:
            yield row, *_cut(path, row, line, size)
            count += 1
    if promised not in (None, count):
        raise DataError(f"{path}: {count} vectors, but its header says {promised}; is the file complete?")


def _rows(path: Path, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    """The rows that are not blank, with their numbers from 1, unzipped where needed."""
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"
            stream = io.BufferedReader(gzip.GzipFile(fileobj=file)) if zipped else file
            row = 0
            while line := stream.readline(_LONGEST_ROW):
                row += 1
                if row == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if len(line) == _LONGEST_ROW:
                    raise _wrong(path, row, line, "a row of more than a million bytes; is it a text file?")
                if line := line.rstrip(b" \r\n"):
                    yield row, line
                if progress and row % _ROWS_BETWEEN_REPORTS == 0:
                    progress(file.tell(), total)
    except (EOFError, zlib.error, gzip.BadGzipFile) as reason:
        raise DataError(f"{path}: not a whole gzip file ({reason}); download it again") from None
    except OSError as reason:
        raise DataError(f"{path}: cannot be read ({reason.strerror})") from None
    if progress:
        progress(total, total)


def _cut(path: Path, row: int, line: bytes, size: int) -> tuple[bytes, bytes]:
    """Part a row into its word and its `size` numbers, from the right: some files have words with spaces."""
    spaces = line.count(b" ")
    if spaces == size:
        word = line.partition(b" ")[0]
    else:
        word = line.rsplit(b" ", size)[0]
        if spaces < size or any(map(_DIGITS.fullmatch, word.split(b" ")[1:])):
            has = _numbers_at_end(line)
            raise _wrong(path, row, line, f"{has} numbers where {size} belong; is the file complete?")
    return word, line[len(word) + 1 :]


def _parse(path: Path, row: int, numbers: bytes) -> NDArray[np.float64]:
    fields = numbers.split(b" ")
    try:
        values = np.array([float(field) for field in fields])
    except ValueError:
        bad = next(field for field in fields if not _is_number(field)).decode("utf-8", "backslashreplace")
        raise _wrong(path, row, numbers, f"{bad[:40]!r} is not a number; mend or remove the row") from None
    if not np.all(np.abs(values) <= _LARGEST):  # NaN fails this, too
        raise DataError(f"{location(path, row)}: a number is not finite or too large; mend or remove the row")
    return values


def _numbers_at_end(line: bytes) -> int:
    """How many numbers a row ends with; its first field is the word, whatever it looks like."""
    fields = line.split(b" ")[1:]
    return next((n for n, field in enumerate(reversed(fields)) if not _is_number(field)), len(fields))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _wrong(path: Path, row: int, line: bytes, message: str) -> DataError:
    """The error of a row, which is another one when the file turns out to be no text."""
    if _UNPRINTABLE.search(line):
        return DataError(f"{location(path, row)}: binary, not text; unpack it or export it as text")
    return DataError(f"{location(path, row)}: {message}")
