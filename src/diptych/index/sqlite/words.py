"""Searches the full-text table of an index. Every word is quoted, so that a text is never FTS5 syntax."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from diptych.data.corpus import Floats, Integers
from diptych.index.query_text import quoted_phrases
from diptych.index.sqlite.database import Database

_NOT_IN_WORDS = re.compile(r"[\W_]+")


def described_by(database: Database, phrases: Sequence[str]) -> Integers:
    """The ids of the images with any of these phrases in captions or in the picture, ascending."""
    quoted = [_quote(words) for phrase in phrases if (words := _words(phrase))]
    if not quoted:
        return np.zeros(0, np.int64)
    statement = "SELECT rowid FROM image_words WHERE image_words MATCH ? ORDER BY rowid"
    rows = database.rows(statement, (f"{{captions picture}} : ({' OR '.join(quoted)})",))
    return np.array([id for (id,) in rows], np.int64)


def by_words(database: Database, text: str, *, every: bool) -> tuple[Integers, Floats]:
    """The images with all of these words and phrases, or with at least one of them, best first, with BM25 scores."""
    found = _query(text, " AND " if every else " OR ")
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    statement = "SELECT rowid, -rank FROM image_words WHERE image_words MATCH ? ORDER BY rank, rowid"
    rows = database.rows(statement, (found,))
    return np.array([id for id, _ in rows], np.int64), np.array([score for _, score in rows], np.float32)


def with_words(database: Database, text: str) -> Integers:
    """The ids of the images with all of these words, ascending."""
    found = _query(text, " AND ")
    statement = "SELECT rowid FROM image_words WHERE image_words MATCH ? ORDER BY rowid"
    return np.array([id for (id,) in database.rows(statement, (found,))] if found else [], np.int64)


def has_descriptions(database: Database) -> bool:
    """Whether any image has a caption, or words that were read in it."""
    captions, read = "SELECT 1 FROM entries WHERE image IS NOT NULL", "SELECT 1 FROM picture_words WHERE words != ''"
    return bool(database.rows(f"SELECT EXISTS({captions}) OR EXISTS({read})")[0][0])


def has_word(database: Database, word: str) -> bool:
    """Whether a word, in lower case and without accents, occurs in any column."""
    _show_vocabulary(database)
    return bool(database.rows("SELECT 1 FROM temp.vocabulary WHERE term = ?", (word,)))


def word_counts(database: Database) -> dict[str, int]:
    """Every word with how often it occurs, in all columns together."""
    _show_vocabulary(database)
    return dict(database.rows("SELECT term, cnt FROM temp.vocabulary"))


def _show_vocabulary(database: Database) -> None:
    """Make the table of words, which only reads the full-text table; a new connection does not have it yet."""
    database.rows("CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab(main, image_words, row)")


def _words(text: str) -> list[str]:
    """The parts of a text between spaces and punctuation; an accent of its own, as in file names on macOS, is none."""
    return [word for word in _NOT_IN_WORDS.split(unicodedata.normalize("NFC", text)) if word]


def _query(text: str, joined: str) -> str:
    """The words of a text, and its phrases in quotes, as a query, each of them once; empty if it has none."""
    phrases, rest = quoted_phrases(text)
    parts = [*(_words(phrase) for phrase in phrases), *([word] for word in _words(rest))]
    return joined.join(dict.fromkeys(_quote(words) for words in parts if words))


def _quote(words: Sequence[str]) -> str:
    return f'"{" ".join(words)}"'
