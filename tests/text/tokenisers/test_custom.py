import json

import pytest

from diptych.errors import DataError, RecipeError
from diptych.text.tokenisers.custom import CustomPieces
from diptych.text.tokenisers.stored import load_tokeniser
from support.tokenisers import bert_document


def test_a_file_is_read_and_stored_in_the_run(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(bert_document()))
    made = CustomPieces.from_file(tmp_path / "tokenizer.json")
    made.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    again = load_tokeniser(tmp_path)
    assert (again, again.digest) == (made, made.digest)
    assert again.tokens("dogs") == ["<start>", "dog", "##s", "<end>"]


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "own.json"
    path.write_text('{"model": {"type": "Magic"}}')
    with pytest.raises(DataError, match=rf"^{path}: the tokenizers library cannot read it"):
        CustomPieces.from_file(path)
    with pytest.raises(DataError, match=r"none\.json: no such file"):
        CustomPieces.from_file(tmp_path / "none.json")


def test_it_is_not_made_from_texts():
    with pytest.raises(RecipeError, match="'custom'"):
        CustomPieces.from_texts(["a dog"], 10, 1)
