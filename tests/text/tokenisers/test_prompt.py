import pytest
from pydantic import TypeAdapter, ValidationError

from diptych.text.tokenisers.prompt import Prompt, prompted


def test_texts_go_into_the_slot_and_braces_of_a_text_stay():
    assert list(prompted("a photo of {}.", ["a dog", "{} and {0}"])) == ["a photo of a dog.", "a photo of {} and {0}."]
    assert list(prompted(None, ["a dog"])) == ["a dog"]


@pytest.mark.parametrize("prompt", ["", "a photo", "{} and {}", "{text}"])
def test_a_prompt_has_one_slot(prompt):
    with pytest.raises(ValidationError, match=r"needs \{\} once, where the text goes, such as 'a photo of \{\}'"):
        TypeAdapter(Prompt).validate_python(prompt)
