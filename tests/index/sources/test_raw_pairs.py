import pytest

from diptych.data import file_kinds
from diptych.index.sources.raw_pairs import raw_doubles


@pytest.mark.parametrize("developed", ["a.jpg", "a.JPG", "a.jpeg", "a.heic", "a.HIF"])
def test_a_raw_photo_beside_its_jpeg_or_heic_is_a_double(developed):
    assert raw_doubles(["a.NEF", developed, "b.nef", "a.txt"]) == {"a.NEF"}


def test_other_files_of_the_same_name_are_no_reason_to_leave_a_raw_photo_out():
    assert raw_doubles(["a.nef", "a.png", "a.txt", "A.jpg", "a.b.jpg", "a"]) == set()
    assert raw_doubles(["a.jpg", "b.jpg"]) == set()


def test_a_photo_may_have_several_raw_files():
    assert raw_doubles(["a.nef", "a.dng", "a.jpg"]) == {"a.nef", "a.dng"}


def test_the_raw_photo_is_needed_as_long_as_the_heic_cannot_be_read(monkeypatch):
    monkeypatch.setattr(file_kinds, "_is_installed", lambda module: False)
    assert raw_doubles(["a.dng", "a.heic"]) == set()
