"""Lists of class names: ImageNet's against the files that timm carries, and lists with mistakes."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError
from diptych.text import class_names
from diptych.text.class_names import parse_class_names, read_class_names


def wordnet_lemmas():
    """The lemmas of ImageNet's synsets, in the order of its classes, read as text: timm need not be imported."""
    info = Path(*importlib.util.find_spec("timm").submodule_search_locations) / "data/_info"
    lemmas = dict(line.split("\t") for line in (info / "imagenet_synset_to_lemma.txt").read_text().splitlines())
    return [tuple(lemmas[synset].split(", ")) for synset in (info / "imagenet_synsets.txt").read_text().split()]


def test_imagenets_names_are_wordnets_lemmas_apart_from_those_that_occur_twice():
    names, lemmas = read_class_names("imagenet"), wordnet_lemmas()
    assert len(names) == len(lemmas) == 1000
    changed = {number: names[number] for number in range(1000) if names[number] != lemmas[number]}
    assert changed == {
        134: ("crane, wading bird",),
        264: ("Cardigan Welsh corgi",),
        517: ("crane, lifting tackle",),
        638: ("maillot, tights",),
        639: ("maillot, tank suit", "tank suit"),
    }
    repeated = [lemmas[number][0].casefold() for number in changed]
    assert sorted(repeated) == ["cardigan", "crane", "crane", "maillot", "maillot"]
    assert len({first.casefold() for first, *_ in names}) == 1000


def test_the_licence_of_wordnet_is_beside_the_names():
    folder = Path(class_names.__file__).parent / "names"
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in (folder / "LICENSE-WordNet.txt").read_text()


def test_a_list_has_one_class_per_line_and_further_names_after_tabs(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("\ufeffred  kite\tmilan royal \n Mäusebussard\t\tbuzzard\nsedan, red\n", encoding="utf-8")
    assert read_class_names(file) == (("red kite", "milan royal"), ("Mäusebussard", "buzzard"), ("sedan, red",))
    assert read_class_names(str(file)) == read_class_names(file)


@given(st.lists(st.lists(st.text("abc ", min_size=1).filter(str.strip), min_size=1, max_size=3), min_size=1))
def test_the_number_of_lines_is_the_number_of_classes(rows):
    rows = [[f"{number} {name}" for name in names] for number, names in enumerate(rows)]
    classes = parse_class_names(["\t\t".join(names) for names in rows], "names.txt")
    assert [list(names) for names in classes] == [[" ".join(name.split()) for name in names] for names in rows]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crane\nkite\nCrane\tbird\n", r"names\.txt:3: the name 'Crane' is that of line 1, too; make them distinct"),
        ("crane\n\nkite\n", r"names\.txt:2: empty; every line names the class of that number"),
        ("", r"names\.txt:1: empty"),
        ("crane\n \t \n", r"names\.txt:2: empty"),
    ],
)
def test_a_list_with_a_mistake_names_the_lines(text, message, tmp_path):
    file = tmp_path / "names.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        read_class_names(file)
    assert "\n" not in str(error.value)


def test_a_name_may_be_a_synonym_of_another_class():
    assert parse_class_names(["giant panda\tpanda", "lesser panda\tpanda"], "names")[1] == ("lesser panda", "panda")


def test_what_is_no_list_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"imagnet: no such list of class names; use 'imagenet', or a text file"):
        read_class_names("imagnet")
    file = tmp_path / "latin.txt"
    file.write_bytes("Mäusebussard".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt: not UTF-8 text \(byte 1\); save it as UTF-8"):
        read_class_names(file)
