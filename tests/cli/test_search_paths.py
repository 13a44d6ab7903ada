import os
from types import SimpleNamespace

import pytest

from diptych.cli.search_paths import absolute_path, print_paths, with_paths
from diptych.index.entries import Answer, Entry, Hit

ENTRIES = (Entry(1, "image", "a\nb.jpg", 1, path="a\nb.jpg"), Entry(2, "image", "drawn", 2))
ANSWER = Answer(tuple(Hit(entry, 0.5) for entry in ENTRIES), True, 2)


@pytest.fixture
def store(tmp_path):
    return SimpleNamespace(spec=SimpleNamespace(root=str(tmp_path)))


def test_json_has_the_absolute_path_or_null(store, tmp_path):
    assert [hit["path"] for hit in with_paths(store, ANSWER)["hits"]] == [str(tmp_path / "a\nb.jpg"), None]
    assert absolute_path(None, ENTRIES[0]) is None


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_paths_are_printed_as_they_are(store, tmp_path, end, capfdbinary):
    print_paths(store, ANSWER, end)
    out, err = capfdbinary.readouterr()
    assert out == os.fsencode(f"{tmp_path}/a\nb.jpg{end}")
    assert b"1 of 2 images are not in a file" in err
