import subprocess
import sys
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diptych.errors import DiptychError
from diptych.text.tokenisers import clip
from diptych.text.tokenisers.cleaning import cleaner
from diptych.text.tokenisers.clip import clip_tokeniser
from support.tokenisers import rows

# Unassigned characters are left out: the two libraries have different versions of Unicode.
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs", "Cn"]), st.sampled_from("'sStTrReEvVmMlLdD&amp;<>_!?. \n0123ſKİßé犬の")
    ),
    max_size=40,
)


def is_assigned(text):
    """Whether a text has no unassigned characters after it was repaired, which can make some."""
    return all(unicodedata.category(character) != "Cn" for character in cleaner("whitespace")(text))


@pytest.fixture(scope="module")
def theirs(torchvision):
    """open_clip's tokeniser."""
    return pytest.importorskip("open_clip.tokenizer").SimpleTokenizer


@pytest.fixture(scope="module")
def ours():
    return {clean: clip_tokeniser(context, clean) for clean, context in (("lower", 77), ("whitespace", 12))}


@given(text=texts)
def test_ids_are_those_of_open_clip(theirs, ours, text):
    assume(is_assigned(text))
    assert_equal(ours["lower"], theirs(), text)


@given(text=texts)
def test_case_is_kept_if_texts_are_only_joined(theirs, ours, text):
    assume(is_assigned(text))
    assert_equal(ours["whitespace"], theirs(clean="whitespace", context_length=12), text)


@pytest.mark.parametrize("text", ["", "word " * 100, "x <start_of_text> y <END_OF_TEXT>", "don't DON'T they'll 2,000"])
def test_ends_of_texts_are_those_of_open_clip(theirs, ours, text):
    assert_equal(ours["lower"], theirs(), text)


def test_clitics_are_found_in_any_case(theirs, ours):
    assert_equal(ours["whitespace"], theirs(clean="whitespace", context_length=12), "DON'T They'LL")


def assert_equal(ours, theirs, text):
    (row,) = rows(ours.encode_all([text]))
    expected = theirs([text])[0].tolist()
    assert row == expected[: len(row)]
    assert not any(expected[len(row) :])


def test_its_size_and_words(ours):
    tokeniser = ours["lower"]
    assert len(tokeniser) == 49_408
    assert tokeniser.tokens("A dog") == ["<start_of_text>", "a</w>", "dog</w>", "<end_of_text>"]
    assert tokeniser.known(["dog", "☃", "犬"]).all()  # it knows every byte
    assert tokeniser.known(tokeniser.sample_words).all()
    assert len(tokeniser.sample_words) > 500


def test_a_prompt_is_around_every_text(ours):
    photo = clip_tokeniser(prompt="a photo of {}.")
    assert rows(photo.encode_all(["a dog"])) == rows(ours["lower"].encode_all(["a photo of a dog."]))


def test_a_missing_package_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setattr(clip.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DiptychError, match=r"^open_clip is not installed; run: pip install 'diptych\[open-clip\]'$"):
        clip_tokeniser()


def test_torch_is_never_loaded():
    code = (
        "import sys; from diptych.text.tokenisers.clip import clip_tokeniser; "
        "clip_tokeniser().encode_all(['a']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
