import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DiptychError
from diptych.text.tokenisers.cleaning import cleaner

TEXTS = {
    "none": " A  &amp;amp; b_c!\t",
    "whitespace": "A & b_c!",
    "lower": "a & b_c!",
    "canonicalize": "a b c",
    "unpunctuated": "a ampamp bc",
}

characters = st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("&amp;lt_{}!.' \nÃ©İ"))


@pytest.mark.parametrize("cleaning", TEXTS)
def test_texts_are_cleaned(cleaning):
    assert cleaner(cleaning)(" A  &amp;amp; b_c!\t") == TEXTS[cleaning]
    assert cleaner(cleaning)("") == ""


def test_wrongly_decoded_characters_are_repaired():
    assert cleaner("whitespace")("cafÃ©") == "café"
    assert cleaner("none")("cafÃ©") == "cafÃ©"


@pytest.fixture(scope="module")
def theirs(torchvision):
    """The cleaning functions of open_clip."""
    return pytest.importorskip("open_clip.tokenizer").get_clean_fn


@pytest.mark.parametrize("cleaning", ["whitespace", "lower", "canonicalize"])
@given(text=st.text(characters, max_size=30))
def test_cleaning_is_that_of_open_clip(theirs, cleaning, text):
    assert cleaner(cleaning)(text) == theirs(cleaning)(text)


def test_a_missing_package_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(DiptychError, match=r"^ftfy is not installed; run: pip install 'diptych\[tokenizers\]'$"):
        cleaner("lower")("a")
    assert cleaner("none")("a") == "a"


@given(text=st.text(characters, max_size=30))
def test_without_repair_it_is_that_of_transformers_for_siglip(torchvision, text):
    tokenizer = pytest.importorskip("transformers.models.siglip.tokenization_siglip").SiglipTokenizer
    theirs = tokenizer.__new__(tokenizer)
    theirs.do_lower_case = True
    assert cleaner("unpunctuated")(text) == theirs.canonicalize_text(text)
