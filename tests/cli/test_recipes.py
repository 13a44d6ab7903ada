"""`diptych recipes`: what was asked for on stdout, what was published for it on stderr."""

import json
import re
import sys

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.training.recipe_catalogue import catalogue, recipe_names
from diptych.training.recipe_loader import load_recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def show(*words):
    result = CliRunner().invoke(app, ["recipes", "show", *words])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("options", [(), ("--full",)], ids=["what it sets", "full"])
def test_what_is_printed_is_the_complete_recipe(options, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(show("vsepp-rc-vgg19-ft", *options).stdout)
    assert load_recipe(str(file)) == load_recipe("vsepp-rc-vgg19-ft")
    assert "base" not in tomllib.loads(file.read_text())
    assert ("seed" in tomllib.loads(file.read_text())) is bool(options)  # defaults are written out in full only
    assert 'trainable = ["project", "text", "project_text"]' in file.read_text()


@pytest.mark.parametrize("words", [("vsepp", "--profile", "small"), ("vsepp-small",)])
def test_a_profile_is_shown(words, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(show(*words).stdout)
    assert load_recipe(str(file)) == load_recipe("vsepp-small")


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
    assert printed[table_ii + 1 : table_ii + 3] == [
        "  image to text  R@1 39.9  R@10 79.1",
        "  text to image  R@1 28.2  R@10 67.9",
    ]
    printed = show("dual-path-coco-stage1").stderr.splitlines()
    table_iv = printed.index("published, row IV, ours (COCO 1K):")
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


def run(*words):
    result = CliRunner().invoke(app, ["recipes", *words])
    assert result.exit_code == 0, result.output
    return result


def test_the_overview_has_a_few_lines_for_each_paper():
    listed = run("list").stdout.splitlines()
    assert [line.split()[0] for line in listed if line[0] != " "][1:] == [
        *("diptych", "adapt", "aoq", "convse", "dual_path", "two_branch", "vsepp")
    ]
    assert len(listed) < 45


@pytest.mark.parametrize("paper", catalogue().papers)
def test_a_paper_is_one_screen_with_each_of_its_recipes(paper):
    listed = run("list", paper).stdout
    names = {name for group in catalogue().papers[paper].groups.values() for name in group}
    assert names <= set(re.findall(r"[\w-]+", listed))
    assert len(listed.splitlines()) <= 50
    assert max(map(len, listed.splitlines())) <= 80


def test_the_rows_of_a_recipe_are_listed_with_it():
    assert "vsepp-rc-vgg19 (1.7, 3.11)," in run("list", "vsepp").stdout
    assert "dual-path-left-stage1 (VI)" in run("list", "dual_path").stdout
    assert "--profile small" in run("list", "vsepp").stderr


def test_a_part_of_a_name_lists_recipes_with_their_titles():
    listed = run("list", "classes").stdout.splitlines()[1:]
    names = [name for name in recipe_names() if "classes" in name]
    assert sorted(line.split()[0] for line in listed if line[0] != " ") == names
    assert len(names) == 7
    assert any("3,000 classes" in line for line in listed)


def test_names_are_never_cut():
    longest = max(catalogue().all_names(), key=len)
    assert f"{longest} " in run("list", longest).stdout


def test_a_part_that_no_name_has_comes_with_the_nearest():
    result = CliRunner().invoke(app, ["recipes", "list", "vsepp-rx"])
    assert "no recipe has 'vsepp-rx' in its name; did you mean 'vsepp" in str(result.exception)


def test_the_list_for_programs_is_complete():
    listed = {each["name"]: each for each in json.loads(run("list", "--json").stdout)}
    assert sorted(listed) == recipe_names()
    tuned = listed["vsepp-rc-resnet152-ft"]
    assert (tuned["folder"], tuned["stages"], tuned["profiles"]) == ("vsepp", 2, ["small"])
    assert tuned["title"] == load_recipe("vsepp-rc-resnet152-ft").title
    assert tuned["paper"]["row"][0]["i2t"] == [52.9, 80.5, 87.2, 1.0]
    assert listed["vse-small"]["profiles"] == []
    assert [each["name"] for each in json.loads(run("list", "vsepp-small", "--json").stdout)] == [
        "convsepp-small",
        "vsepp-small",
    ]


def test_the_recipe_of_a_row_is_found_and_shown():
    found = run("find", "--paper", "vsepp", "--table", "3", "--row", "17")
    assert found.stdout == "vsepp-rc-resnet152-ft\n"
    assert "published, row 3.17 (Flickr30K):" in found.stderr
    assert 'backbone = "resnet152"' in found.stderr


def test_the_rows_of_a_table_are_listed():
    listed = run("find", "--paper", "aoq", "--table", "2").stdout.splitlines()[1:]
    assert [line.split()[:3] for line in listed[-2:]] == [["2", "5", "vsrn"], ["2", "6", "vsrn-aoq"]]
    assert len(listed) == 10


def test_rows_for_programs():
    found = json.loads(run("find", "--paper", "convse", "--table", "III", "--row", "3", "--json").stdout)
    assert [each["recipe"] for each in found] == ["vsepp-rc-resnet152-ft", "vsepp-rc-rv-resnet152-ft"]
    assert (found[0]["paper"], found[0]["table"], found[0]["row"]) == ("convse", "III", "3")
    assert found[0]["published"]["t2i"] == [39.6, 70.1, 79.5]


def test_a_row_that_is_not_there_comes_with_the_choices():
    result = CliRunner().invoke(app, ["recipes", "find", "--paper", "vsepp", "--table", "3", "--row", "99"])
    assert "choose from 8, 9, 10" in str(result.exception)


def test_a_shown_recipe_can_be_read_again(tmp_path, invoke, refused):
    shown = invoke("recipes", "show", "vsepp")
    file = tmp_path / "mine.toml"
    file.write_text(shown.stdout)
    assert 'negatives = "max"' in invoke("recipes", "show", str(file), "--full").stdout
    assert "did you mean 'vsepp'" in refused("recipes", "show", "vsep")
