import pytest

from diptych.errors import RecipeError
from diptych.training.published_rows import find_rows, parse_label, rows_of
from diptych.training.recipe_catalogue import catalogue


@pytest.mark.parametrize(
    ("label", "places"),
    [
        ("3.17", [("3", "17")]),
        ("1.12, 5.2, ensemble of two runs", [("1", "12"), ("5", "2")]),
        ("III.4, IV", [("III", "4"), ("IV", "")]),
        ("I, ResNet-50, Stage I", [("I", "ResNet-50, Stage I")]),
        ("2b, non-linear, one direction", [("2b", "non-linear, one direction")]),
        ("II, temperature = 0.1, output = 1024", [("II", "temperature = 0.1, output = 1024")]),
        ("nowhere", []),
    ],
)
def test_a_label_names_tables_and_rows(label, places):
    assert parse_label(label) == places


def test_every_published_row_is_in_a_table():
    for name in catalogue().definitions:
        for row in rows_of(name):
            assert row.table, name
    assert sum(len(rows_of(name)) for name in catalogue().definitions) > 150


@pytest.mark.parametrize(
    ("paper", "table", "row", "names"),
    [
        ("vsepp", "3", "17", ["vsepp-rc-resnet152-ft"]),
        ("vsepp", "1", "11", ["vsepp-rc-rv-resnet152-ft"]),
        ("aoq", "2", "4", ["bfan-equal-aoq", "bfan-prob-aoq"]),  # an ensemble
        ("aoq", "5", "2", ["vsrn-coco-aoq"]),
        ("convse", "III", "3", ["vsepp-rc-resnet152-ft", "vsepp-rc-rv-resnet152-ft"]),  # recipes of another paper
        ("convse", "3", "5", ["convsepp-rc-resnet152", "convsepp-rc-rv-resnet152"]),  # III may be written as 3
        ("dual_path", "i", "vgg-19, stage ii", ["dual-path-vgg19"]),
        ("dual_path", "VIII", "VGG-19, Stage I, 5K", ["dual-path-coco-vgg19-stage1"]),
        ("two_branch", "2b", "linear", ["two-branch-linear", "two-branch-linear-one"]),  # not the non-linear ones
        ("two_branch", "2", "Mean vector", ["cca-mean"]),  # figures quoted from Klein et al.
        ("two_branch", None, "with two-branch-phrases", ["two-branch"]),
    ],
)
def test_a_row_has_its_recipes(paper, table, row, names):
    assert sorted({each.recipe for each in find_rows(paper, table, row)}) == names


def test_the_rows_of_a_table_are_in_its_order():
    assert [each.label for each in find_rows("vsepp", "3")] == [f"3.{row}" for row in range(8, 18)]
    assert {each.table for each in find_rows("two_branch", "2")} == {"2a", "2b", "2c"}
    tables = [each.table for each in find_rows("dual_path")]
    assert list(dict.fromkeys(tables)) == ["I", "II", "III", "IV", "V", "VI", "VII", "VIII"]


@pytest.mark.parametrize(
    ("paper", "table", "row", "message"),
    [
        ("vsep", None, None, "--paper vsep: no such paper; did you mean 'vsepp'?"),
        ("diptych", None, None, "--paper diptych: has no published tables; see `diptych recipes list diptych`"),
        ("vsepp", "9", None, "--table 9: no recipe follows that table of vsepp; choose from 1, 2, 3, 4"),
        ("aoq", "2", "19", "--row 19: no recipe follows that row of Table 2 of aoq; choose from 1, 2, 3, 4, 5, 6"),
        ("dual_path", "VI", "right", "--row right: no recipe follows that row of Table VI of dual_path; choose from "),
    ],
)
def test_what_is_not_found_comes_with_the_choices(paper, table, row, message):
    with pytest.raises(RecipeError) as raised:
        find_rows(paper, table, row)
    assert str(raised.value).startswith(message)
