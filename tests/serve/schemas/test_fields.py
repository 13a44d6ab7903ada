import pytest
from pydantic import TypeAdapter, ValidationError

from diptych.serve.schemas.fields import AlbumId, Id, Ids, Words


def test_words_must_not_be_blank():
    assert TypeAdapter(Words).validate_python(" a dog ") == " a dog "
    with pytest.raises(ValidationError, match="is empty; describe what to look for"):
        TypeAdapter(Words).validate_python(" \n")


def test_an_album_may_be_the_favourites_and_an_entry_has_a_positive_id():
    assert TypeAdapter(AlbumId).validate_python(0) == 0
    for kind, wrong in ((AlbumId, -1), (Id, 0)):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(wrong)


def test_ids_may_have_commas_between_them():
    assert TypeAdapter(Ids).validate_python(["1,2", "3"]) == [1, 2, 3]
    with pytest.raises(ValidationError):
        TypeAdapter(Ids).validate_python(["1,,2"])
