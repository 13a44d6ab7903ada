import json
import sys
from collections.abc import Iterable
from typing import Literal

import pytest

from diptych.errors import DataError, DiptychError, RecipeError
from diptych.text.tokenisers import library
from diptych.text.tokenisers.library import LibraryTokeniser, read_document
from diptych.text.tokenisers.token_table import TokenTable
from support.tokenisers import bert_document, rows, unigram_document


class Plain(LibraryTokeniser):
    """The library's ids, without special tokens."""

    name: Literal["plain"] = "plain"

    def __len__(self):
        return self.library.get_vocab_size()

    def encode_all(self, texts: Iterable[str]):
        return TokenTable.from_rows(self.encode_texts(texts, special=False))

    def tokens(self, text):
        return self.library.encode(text, add_special_tokens=False).tokens


BERT, UNIGRAM = Plain(document=bert_document()), Plain(document=unigram_document())


def test_truncation_and_padding_of_a_document_are_left_out():
    document = bert_document()
    assert document["truncation"]["max_length"] == 4
    assert document["padding"]["pad_id"] == 0
    assert BERT.document["truncation"] is BERT.document["padding"] is None
    assert BERT.tokens("a dog run on the beach.") == ["a", "dog", "run", "on", "the", "beach", "."]
    assert Plain(document={**document, "truncation": None}).digest == BERT.digest


def test_many_texts_are_encoded_in_blocks(monkeypatch):
    texts = ["a dog", "dogs", "", "the cat"] * 3
    expected = rows(BERT.encode_all(texts))
    assert expected[:3] == [[4, 5], [5, 13], []]
    monkeypatch.setattr(library, "TEXTS_AT_ONCE", 5)
    assert rows(BERT.encode_all(iter(texts))) == expected
    assert list(BERT.encode_texts(["a", "dog"], special=True)) == [[2, 4, 3], [2, 5, 3]]
    assert rows(BERT.encode_all(["a \ud800"])) == rows(BERT.encode_all(["a \ufffd"]))


@pytest.mark.parametrize(
    ("tokeniser", "unknown", "words", "known"),
    [
        (BERT, 1, ["dogs", "Dog", "gnu", "dog.", ""], [True, True, False, True, False]),
        (UNIGRAM, 2, ["dogs", "cow", "犬", "xdy", "dx"], [True, True, False, False, True]),
    ],
    ids=["wordpiece", "unigram"],
)
def test_words_of_unknown_pieces_are_unknown(tokeniser, unknown, words, known):
    assert tokeniser.unknown_id == unknown
    assert tokeniser.known(words).tolist() == known


def test_a_library_without_an_unknown_piece_leaves_characters_out():
    document = unigram_document()
    document["model"] = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], "unk_token": None}
    document["added_tokens"], document["post_processor"] = [], None
    made = Plain(document={**document, "pre_tokenizer": None})
    assert made.unknown_id is None
    assert made.known(["ab", "xyz", "xa"]).tolist() == [True, False, True]


def test_samples_are_distinct_known_words():
    assert list(BERT.sample_words) == ["a", "dog", "cat", "run", "on", "the", "beach", "photo", "of", "zebra"]
    assert list(UNIGRAM.sample_words) == ["a", "dog", "cat", "s", "on", "d", "o", "g", "c"]
    assert UNIGRAM.known(UNIGRAM.sample_words).all()


def test_a_document_is_read_from_a_file_or_a_folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(bert_document()))
    assert read_document(tmp_path) == read_document(tmp_path / "tokenizer.json") == bert_document()


def test_other_files_are_refused_with_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"has no tokenizer\.json; write one with transformers: AutoTokenizer"):
        read_document(tmp_path)
    with pytest.raises(DataError, match=r"none\.json: no such file"):
        read_document(tmp_path / "none.json")
    for content in ("[]", "{}", '{"model": 3}'):
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(DataError, match=r"other\.json: not a tokenizer\.json \(it has no model\)"):
            read_document(tmp_path / "other.json")


def test_what_the_library_cannot_read_is_one_line():
    with pytest.raises(RecipeError, match=r"^Plain: the tokenizers library cannot read it \(.*\)$") as error:
        Plain(document={"model": {"type": "Magic", "vocab": ["x"] * 1000}})
    assert len(str(error.value)) < 400


def test_a_missing_library_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DiptychError, match=r"^tokenizers is not installed; run: pip install 'diptych\[tokenizers\]'$"):
        Plain(document=bert_document())
