"""`diptych recipes show`: a recipe on stdout, what was published for it on stderr."""

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.training.recipe_catalogue import recipe_names
from diptych.training.recipe_loader import load_recipe


def show(*words):
    result = CliRunner().invoke(app, ["recipes", "show", *words])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("options", [(), ("--full",)], ids=["as written", "full"])
def test_what_is_printed_is_the_recipe(options, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(show("vsepp-rc-vgg19-ft", *options).stdout)
    assert load_recipe(str(file)) == load_recipe("vsepp-rc-vgg19-ft")
    assert ('base = "vsepp-rc-vgg19"' in file.read_text()) is not bool(options)  # in full it needs no base


def test_the_published_figures_are_beside_it():
    shown = show("vsepp-rc-vgg19-ft")
    assert shown.stderr.splitlines() == [
        "follows Faghri et al. 2018, VSE++",
        "published, row 3.13 (Flickr30K):",
        "  image to text  R@1 41.3  R@5 69.1  R@10 77.9  median rank 2.0",
        "  text to image  R@1 31.4  R@5 60.0  R@10 71.2  median rank 3.0",
    ]
    assert "published" not in shown.stdout


def test_each_row_of_a_recipe_is_printed():
    printed = show("vsepp-rc-rv-resnet152-ft").stderr
    assert "row 1.11 (COCO, 1K test images)" in printed
    assert "row 1.14 (COCO, 5K test images)" in printed


def test_two_decimals_are_printed_where_they_were_published():
    assert show("similarity-phrases").stderr.splitlines()[-1] == "  phrases        R@1 51.05  R@5 70.30  R@10 75.04"
    assert "text to text   R@1 61.2  R@5 82.3  R@10 89.2" in show("two-branch").stderr


def test_figures_that_were_not_published_are_left_out():
    printed = show("dual-path-stage1").stderr.splitlines()
    table_ii = printed.index("published, row II, only instance loss, Stage I (Flickr30K, validation):")
    table_iv = printed.index("published, row IV, ours (COCO 1K):")
    assert printed[table_ii + 1 : table_ii + 3] == [
        "  image to text  R@1 39.9  R@10 79.1",
        "  text to image  R@1 28.2  R@10 67.9",
    ]
    assert printed[table_iv + 1 : table_iv + 3] == ["  image to text  R@1 52.2", "  text to image  R@1 37.2"]


def test_a_direction_that_was_not_published_is_left_out():
    assert show("dual-path-pedes").stderr.splitlines()[1:] == [
        "published, row VII, ResNet-50, Stage II (CUHK-PEDES):",
        "  text to image  R@1 44.40  R@5 66.26  R@10 75.07  median rank 2.0",
    ]


def test_a_recipe_with_dashes_is_printed_in_full(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(show("dual-path-stage1", "--full").stdout)
    assert load_recipe(str(file)) == load_recipe("dual-path-stage1")


def test_the_longest_name_is_listed_whole():
    listed = CliRunner().invoke(app, ["recipes", "list", "linear-single"]).stdout
    assert max(recipe_names(), key=len) == "similarity-phrases-linear-single-small"
    assert "similarity-phrases-linear-single-small " in listed
