import zipfile
from pathlib import Path

import pytest

import diptych
from diptych.errors import RecipeError
from diptych.training.recipe_catalogue import catalogue, read_catalogue

PACKAGED = Path(diptych.__file__).parent / "recipes"
PAPER = 'title = "A paper"\nabout = "It trains."\nstart = ["one"]\nreference = "Somebody 2020"'
ROWS = """
title = "Table 1"
[shared]
seed = 5
[[shared.stage]]
epochs = 3
[recipe.one]
paper.row = [{ number = "1.1", data = "data" }]
[recipe.two]
base = "one"
stage.1.epochs = 4
[recipe.three]
base = "elsewhere"
"""
SMALL = """
title = "Small only"
[profile]
about = "small"
[[profile.change]]
recipes = ["*"]
set.stage.1.epochs = 1
set.stage.2.epochs = 2
[[profile.change]]
recipes = ["t*"]
set.seed = 7
[[profile.change.first]]
epochs = 9
[recipe.two-small]
base = "two"
"""


def write(folder, **files):
    (folder / "paper").mkdir()
    for name, text in {"paper": PAPER, **files}.items():
        (folder / "paper" / f"{name}.toml").write_text(text)
    return folder


@pytest.fixture
def found(tmp_path):
    return read_catalogue(write(tmp_path, rows=ROWS, small=SMALL))


def test_a_recipe_has_what_its_file_shares(found):
    assert found.definitions["one"].content["seed"] == 5
    assert found.definitions["one"].content["stage"] == [{"epochs": 3}]
    assert found.definitions["three"].content["stage"] == [{"epochs": 3}]  # over its base, which is of another file
    assert "stage" not in found.definitions["two-small"].content


def test_a_base_of_the_same_file_is_not_hidden_by_what_the_file_shares(found):
    assert found.definitions["two"].content == {
        "base": "one",
        "stage": {"1": {"epochs": 4}},
        "paper": {"reference": "Somebody 2020"},
    }


def test_the_reference_of_the_paper_is_that_of_its_recipes(found):
    assert found.definitions["one"].content["paper"]["reference"] == "Somebody 2020"


def test_groups_are_in_the_order_of_the_files_and_profiles_come_last(found):
    assert found.papers["paper"].groups == {"Table 1": ("one", "two", "three"), "Small only": ("two-small",)}
    assert list(found.papers["paper"].profiles) == ["small"]


def test_a_name_may_end_with_a_profile(found):
    assert found.find("one-small").profile is found.papers["paper"].profiles["small"]
    assert found.find("one").profile is None
    assert found.find("two-small").profile is None  # defined under that name
    assert found.find("two-small-small") is found.find("one-large") is None
    assert found.all_names() == ["one", "one-small", "three", "three-small", "two", "two-small"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("title =", "paper/rows.toml: not valid TOML"),
        ("[recipe.one]", "paper/rows.toml: key 'title' is missing"),
        ('title = ""\n[recipes.one]', "paper/rows.toml: unknown key 'recipes'; did you mean 'recipe'"),
        ('title = ""\n[recipe.two-small]', "paper/small.toml: recipe two-small is also defined in paper/rows.toml"),
    ],
)
def test_a_mistake_names_the_file(rows, message, tmp_path):
    with pytest.raises(RecipeError) as raised:
        read_catalogue(write(tmp_path, rows=rows, small=SMALL))
    assert str(raised.value).startswith(message)


def test_recipes_are_read_from_a_zip_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "recipes.zip", "w") as archive:
        for file in PACKAGED.rglob("*.toml"):
            archive.write(file, file.relative_to(PACKAGED.parent))
    with zipfile.ZipFile(tmp_path / "recipes.zip") as archive:
        assert read_catalogue(zipfile.Path(archive, "recipes/")) == catalogue()


def test_bases_are_at_most_two_deep():
    def bases(name):
        base = catalogue().find(name).content.get("base")
        return 0 if base is None else 1 + bases(base)

    assert max(map(bases, catalogue().definitions)) == 2


def test_no_stage_is_a_placeholder():
    for definition in catalogue().definitions.values():
        stages = definition.content.get("stage", {})
        assert all(stages if isinstance(stages, list) else stages.values()), definition.name


def test_every_paper_says_where_to_start():
    for paper in catalogue().papers.values():
        assert set(paper.start) <= {name for group in paper.groups.values() for name in group}
