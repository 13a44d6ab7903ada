"""ARCHITECTURE.md names every module, and nothing that does not exist."""

import re

import pytest

from support.architecture import PAGE, ROOT, SOURCE, page_with_tree

TEXT = PAGE.read_text(encoding="utf-8")
PROSE = TEXT.partition("<!-- tree -->")[0]


def test_the_list_of_modules_is_complete_and_current():
    assert page_with_tree(TEXT) == TEXT, "run `python tests/support/architecture.py`"


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|md))`", TEXT))))
def test_a_file_that_the_page_mentions_exists(path):
    if not re.search(r"NAME|NEED", path):
        assert (ROOT / path).exists() or (SOURCE / path).exists()


@pytest.mark.parametrize("folder", sorted(set(re.findall(r"`([\w/]+/)`", PROSE))))
def test_a_folder_that_the_page_mentions_exists(folder):
    if not re.search(r"best/|last/|stage-|PAPER", folder):
        assert any((root / folder).is_dir() for root in (ROOT, SOURCE, SOURCE / "evaluation", SOURCE / "models/towers"))
