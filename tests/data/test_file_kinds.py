import pytest

from diptych.data import file_kinds
from diptych.data.file_kinds import IMAGE_SUFFIXES, install_hint


def test_every_ending_is_written_as_a_suffix():
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in IMAGE_SUFFIXES)


@pytest.mark.parametrize("suffix", [".heic", ".HEIC", ".hif", ".heif"])
def test_a_kind_without_its_package_says_what_to_install(suffix, monkeypatch):
    monkeypatch.setattr(file_kinds, "_is_installed", lambda module: module != "pillow_heif")
    assert install_hint(suffix) == "pip install 'diptych[heic]'"
    monkeypatch.setattr(file_kinds, "_is_installed", lambda module: True)
    assert install_hint(suffix) is None


def test_other_files_need_nothing(monkeypatch):
    monkeypatch.setattr(file_kinds, "_is_installed", lambda module: False)
    assert install_hint(".jpg") is None
    assert install_hint("") is None


def test_installed_packages_are_found():
    assert file_kinds._is_installed("PIL")
    assert not file_kinds._is_installed("no_such_package")
