import pytest

from diptych.text.control_characters import has_control_characters


@pytest.mark.parametrize("text", ["a\nb", "\x00", "a\x1b[0m", "a\u2028", "a\u2029", "\ud800", "a\tb"])
def test_control_characters_are_found(text):
    assert has_control_characters(text)


@pytest.mark.parametrize("text", ["", "a b", "été", "写真\u3000一", "🏖", "a\u00a0b"])
def test_other_texts_have_none(text):
    assert not has_control_characters(text)
