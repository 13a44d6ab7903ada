import json
import pickle
from typing import Literal

import pytest

import diptych
from diptych.errors import RunError
from diptych.plugins import allow_code
from diptych.text.tokenisers.stored import StoredTokeniser, load_tokeniser, tokeniser_file
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.usem3 import USETokeniser
from diptych.text.vocabulary import Vocabulary

WORDS = Vocabulary(("dog", "cat"), (2, 1), 1)

PLUGIN = """
import numpy as np
from diptych.text.tokenisers.stored import StoredTokeniser
from diptych.text.tokenisers.token_table import TokenTable

class Letters(StoredTokeniser):
    shift: int = 4

    @property
    def sample_words(self):
        return ["a"]
    def __len__(self):
        return 128 + self.shift
    def encode_all(self, texts):
        return TokenTable.from_rows([ord(letter) + self.shift for letter in text] or [0] for text in texts)
    def encode_words(self, texts):
        return self.encode_all(map(" ".join, texts))
    def split(self, text):
        return text.split()
    def known(self, words):
        return np.ones(len(words), bool)
    def tokens(self, text):
        return list(text)
"""


def test_the_file_of_a_folder_is_found(tmp_path):
    assert tokeniser_file(tmp_path / "none") is None
    with pytest.raises(RunError, match=r"has neither vocabulary\.json nor tokeniser\.json; name the folder of a run"):
        load_tokeniser(tmp_path)
    WORDS.save(tmp_path)
    assert tokeniser_file(tmp_path) == tmp_path / "vocabulary.json"
    assert load_tokeniser(tmp_path) == WORDS
    (tmp_path / "tokeniser.json").touch()
    with pytest.raises(RunError, match=r"has both vocabulary\.json and tokeniser\.json; remove the one"):
        tokeniser_file(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"[]", "not a tokeniser .its format is not 'diptych-tokeniser'.; restore the file, or train again"),
        (b'{"format": "diptych-vocabulary"}', "not a tokeniser"),
        (b'{"format": "diptych-tokeniser", "version": 2}', "version 2, not the known 1; restore the file"),
        (b'{"format": "diptych-tokeniser", "version": 1}', "tokeniser: needs a table with a name"),
        (
            b'{"format": "diptych-tokeniser", "version": 1, "tokeniser": {"name": "usem"}}',
            "tokeniser.name = 'usem': no such name; did you mean 'usem3'",
        ),
        (
            b'{"format": "diptych-tokeniser", "version": 1, "tokeniser": {"name": "usem3"}}',
            "tokeniser: key 'model' is missing",
        ),
        (
            b'{"format": "diptych-tokeniser", "version": 1, "tokeniser": {"name": "usem3", "modle": "x"}}',
            "tokeniser: .*'model'",
        ),
        (pickle.dumps({"name": "usem3"}), "not UTF-8 text"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, message):
    (tmp_path / "tokeniser.json").write_bytes(content)
    with pytest.raises(RunError, match=f"tokeniser.json.*{message}") as error:
        load_tokeniser(tmp_path)
    assert "\n" not in str(error.value)


def test_a_damaged_vocabulary_is_an_error_of_the_run(tmp_path):
    (tmp_path / "vocabulary.json").write_text("{")
    with pytest.raises(RunError, match=r"vocabulary\.json:1: not valid JSON"):
        load_tokeniser(tmp_path)


def test_settings_are_all_that_is_stored(tmp_path):
    tokeniser = USETokeniser.installed("a photo of {}")
    tokeniser.save(tmp_path)
    content = json.loads((tmp_path / "tokeniser.json").read_text())
    assert (content["format"], content["version"]) == ("diptych-tokeniser", 1)
    assert content["tokeniser"] == tokeniser.model_dump()
    assert load_tokeniser(tmp_path).digest == tokeniser.digest


def test_a_plug_in_is_a_tokeniser_once_its_module_is_allowed(tmp_path, monkeypatch):
    (tmp_path / "letters_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    stored = {"name": "letters_plugin:Letters", "shift": 5}
    (tmp_path / "tokeniser.json").write_text(
        json.dumps({"format": "diptych-tokeniser", "version": 1, "tokeniser": stored})
    )
    monkeypatch.setattr(diptych.plugins, "_allowed", set())
    with pytest.raises(RunError, match=r"tokeniser\.json: .*the module 'letters_plugin' is not allowed"):
        load_tokeniser(tmp_path)
    allow_code("letters_plugin")
    letters = load_tokeniser(tmp_path)
    assert letters.encode_all(["a", ""]).flat.tolist() == [ord("a") + 5, 0]
    letters.save(tmp_path)
    assert load_tokeniser(tmp_path).digest == letters.digest
    assert type(letters)(shift=6).digest != letters.digest


def test_a_tokeniser_defines_the_whole_interface():
    class Half(StoredTokeniser):
        name: Literal["half"] = "half"

        def encode_all(self, texts):
            return TokenTable.from_rows([])

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]
