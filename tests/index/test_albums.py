"""The rules about albums that every backend shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.index.albums import Album, album_store, clean_name, find_album, fold


@pytest.mark.parametrize(
    ("name", "expected"),
    [("  Trip ", "Trip"), ("Cafe\u0301", "Café"), ("x" * 200, "x" * 200), ("Été à la mer 🏖", "Été à la mer 🏖")],
)
def test_a_name_is_trimmed_and_normalised(name, expected):
    assert clean_name(name) == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty"),
        (" \n ", "is empty"),
        ("x" * 201, "has 201 characters"),
        ("a\nb", "control character"),
        ("a\x00b", "control character"),
        ("a\u2028b", "control character"),
        ("a\ud800", "control character"),
    ],
)
def test_other_names_are_refused_in_one_line(name, reason):
    with pytest.raises(DataError, match=reason) as error:
        clean_name(name)
    assert "\n" not in str(error.value)


@given(st.text(max_size=30))
def test_a_name_that_is_accepted_is_accepted_again_as_it_is(name):
    try:
        cleaned = clean_name(name)
    except DataError:
        return
    assert clean_name(cleaned) == cleaned
    assert fold(cleaned) == fold(name)
    assert not name.isascii() or fold(name.upper()) == fold(name.lower())


def test_names_that_differ_in_case_only_are_the_same():
    assert fold(" STRASSE") == fold("straße ")
    assert fold("E\u0301te") == fold("ÉTE")
    assert fold("trip") != fold("trips")


class Albums:
    """A store of two albums."""

    address, album_edition = "a.diptych", 1

    def albums(self):
        return [Album(0, "Favourites", 0, 0, None), Album(7, "Summer Trip", 2, 0, 1)]

    def album_names(self, image):
        raise NotImplementedError

    ids_of = edit_albums = album_names


def test_an_album_is_found_by_its_name():
    assert find_album(Albums(), "summer trip ") == 7
    assert find_album(Albums(), "FAVOURITES") == 0
    with pytest.raises(DataError, match="no album 'sumer trip' in the index; did you mean 'summer trip'"):
        find_album(Albums(), "sumer trip")


def test_a_backend_without_albums_says_so():
    class Plain:
        address = "memory://x"

    with pytest.raises(DataError, match="memory://x: albums need an index in an SQLite file"):
        album_store(Plain())
