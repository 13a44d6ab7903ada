"""The examples of docs/extend/tokeniser.md are tokenisers that work."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from diptych.errors import DataError
from diptych.text.tokenisers.token_table import END, START, UNKNOWN
from support.tokenisers import bert_document, rows

ROOT = Path(__file__).parents[3]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extend" / "tokeniser.md").read_text("utf-8"), re.DOTALL)


def defined(code):
    namespace = {"__name__": "example"}
    exec(code, namespace)
    return namespace


def test_the_example_that_a_recipe_trains():
    kind = defined(BLOCKS[0])["Characters"]
    made = kind.from_texts(["Abba", "ac b"], 3, 2)
    assert made.characters == "ab"
    assert rows(made.encode_all(["ABC", ""])) == [[START, 4, 5, UNKNOWN, END], [START, END]]
    assert made.known(made.split("abc")).tolist() == [True, True, False]
    assert rows(made.encode_words([made.split("ab c")])) == rows(made.encode_all(["ab c"]))
    assert made.tokens("aC") == ["<start>", "a", "c", "<end>"]
    assert len(made) == 6
    assert made.known(made.sample_words).all()
    assert made.digest != kind.from_texts(["abba"], 1, 1).digest
    with pytest.raises(DataError, match="no character occurs 9 times"):
        kind.from_texts(["abba"], 3, 9)


def test_the_example_is_that_of_the_plug_in():
    example = (ROOT / "examples/plugin/src/diptych_example/characters.py").read_text()
    (shown, own) = (code[code.index("class Characters") :] for code in (BLOCKS[0], example))
    assert shown.replace('    name: Literal["characters"] = "characters"\n', "") == own


def test_the_example_of_pretrained_weights(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(bert_document()))
    made = defined(BLOCKS[1])["tokeniser"](SimpleNamespace(folder=str(tmp_path)))
    assert made.context == 128
    assert rows(made.encode_all(["a dog"])) == [[2, 4, 5, 3]]


def test_the_files_that_the_page_names_exist():
    page = (ROOT / "docs" / "extend" / "tokeniser.md").read_text("utf-8")
    for file in re.findall(r"`text/tokenisers/(\w+\.py)`", page):
        assert (ROOT / "src/diptych/text/tokenisers" / file).is_file()
