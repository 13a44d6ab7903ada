import json

import pytest

from diptych.index.sources.selection import Selection
from diptych.index.spec import IndexSpec

ONE = IndexSpec("runs/a", "i", 4, False, "float16", "/photos", "/photos", "0.2.0")
TWO = IndexSpec(
    *("runs/a", "i", 4, False, "float16", "/photos, /card", None, "0.2.0"),
    *((("photos", "/photos"), ("card", "/card")), Selection(("*.gif",), follow_links=True)),
)


@pytest.mark.parametrize("spec", [ONE, TWO])
def test_a_spec_is_stored_as_json(spec):
    assert IndexSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_spec_of_an_earlier_version_has_one_folder_no_patterns_and_the_best_quality():
    stored = {name: value for name, value in ONE.to_json().items() if name not in ("folders", "selection", "quality")}
    assert IndexSpec.from_json(stored) == ONE
    assert ONE.quality == "best"
    for wrong in ({}, {**stored, "storage": "float8"}, {**stored, "size": 0}, {**stored, "more": 1}):
        with pytest.raises((TypeError, ValueError)):
            IndexSpec.from_json(wrong)


def test_a_path_begins_with_the_name_of_its_folder_if_there_are_several():
    assert ONE.file_of("card/a.jpg") == "/photos/card/a.jpg"
    assert TWO.file_of("card/s/a.jpg") == "/card/s/a.jpg"
    assert TWO.file_of("other/a.jpg") is None
    assert ONE.file_of(None) is None
    assert (ONE.roots, TWO.roots) == (("/photos",), ("/photos", "/card"))


def test_a_file_outside_of_its_folders_belongs_to_an_index_only_if_links_are_followed(tmp_path):
    inside, outside = tmp_path / "photos" / "a.jpg", tmp_path / "b.jpg"
    spec = IndexSpec("m", "i", 4, False, "float16", str(inside.parent), str(inside.parent), "0")
    assert spec.contains(inside)
    assert not spec.contains(outside)
    assert TWO.contains(outside)
