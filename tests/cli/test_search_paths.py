import os

import pytest

from diptych.cli.search_paths import print_paths, with_paths
from diptych.index.entries import Answer, Entry, Hit

ENTRIES = (Entry(1, "image", "a\nb.jpg", 1, path="/photos/a\nb.jpg"), Entry(2, "image", "drawn", 2))
ANSWER = Answer(tuple(Hit(entry, 0.5) for entry in ENTRIES), True, 2)


def test_json_has_the_absolute_path_or_null():
    assert [hit["path"] for hit in with_paths(ANSWER)["hits"]] == ["/photos/a\nb.jpg", None]


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_paths_are_printed_as_they_are(end, capfdbinary):
    print_paths(ANSWER, end)
    out, err = capfdbinary.readouterr()
    assert out == os.fsencode(f"/photos/a\nb.jpg{end}")
    assert b"1 of 2 images are not in a file" in err
