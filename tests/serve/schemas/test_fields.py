import pytest
from pydantic import TypeAdapter, ValidationError

from diptych.serve.schemas.fields import Words


def test_words_must_not_be_blank():
    assert TypeAdapter(Words).validate_python(" a dog ") == " a dog "
    with pytest.raises(ValidationError, match="is empty; describe what to look for"):
        TypeAdapter(Words).validate_python(" \n")
