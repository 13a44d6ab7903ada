"""Plans of seeds and sweeps: what is read from the command line, names, and what counts as one run."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.training.recipe_loader import load_recipe
from diptych.training.sweep_plan import plan_seeds, plan_sweep, read_seeds, read_swept_key

MARGIN, MARGIN_1 = "stage.2.objective.margin", "stage.1.objective.margin"


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "a", "1,b", "1,,2", ",", "1;2", "٣", "0,-1", "99999999999,"])
def test_seeds_that_are_none(text):
    with pytest.raises(RecipeError, match=r"write how many, such as 5, or a list"):
        read_seeds(text)


def test_seeds():
    assert read_seeds("5") == (0, 1, 2, 3, 4)
    assert read_seeds(" 7 , 3 ") == (7, 3)
    with pytest.raises(RecipeError, match="a seed is repeated"):
        read_seeds("1,2,1")
    with pytest.raises(RecipeError, match="for that one seed write 20240101,"):
        read_seeds("20240101")


def test_a_run_a_seed():
    runs = plan_seeds("scenes", (3, 0), ["stage.2.epochs=1"])
    assert {name: (recipe.seed, recipe.stage[1].epochs) for name, recipe in runs.items()} == {
        "seed-3": (3, 1),
        "seed-0": (0, 1),
    }
    with pytest.raises(RecipeError, match="leave one of them out"):
        plan_seeds("scenes", (0,), ["seed = 4"])
    with pytest.raises(RecipeError, match="seed = 9999999999"):
        plan_seeds("scenes", (9999999999,))


PLAIN = st.from_regex(r"[a-z0-9.]{1,6}", fullmatch=True)
LISTS = st.lists(PLAIN, min_size=1, max_size=3).map(lambda parts: f"[{', '.join(parts)}]")
QUOTED = st.text("ab,[]{}", min_size=1, max_size=6).map(lambda text: f'"{text}"')


@given(st.lists(PLAIN | LISTS | QUOTED, min_size=1, max_size=5))
def test_values_come_back_whatever_they_hold(values):
    assert read_swept_key(f"a.b = {','.join(values)}") == read_swept_key(f"a.b={' , '.join(values)}")
    assert read_swept_key(f"a.b={','.join(values)}").values == tuple(values)


@pytest.mark.parametrize("text", ["", "a", "=1", "a=", "a=1,,2", "a=1,"])
def test_an_over_that_is_none(text):
    with pytest.raises(RecipeError, match=r"write KEY=VALUE,VALUE,\.\.\."):
        read_swept_key(text)


def test_one_key_at_a_time_with_the_others_at_the_recipes_value():
    sweep = plan_sweep("scenes", [f"{MARGIN}=0.1,0.2", "model.joint=128,256"], ["model.text_projection=true"])
    assert [[(list(row.values.values()), row.is_default) for row in block] for block in sweep.blocks] == [
        [(["0.1"], False), (["0.2"], True)],
        [(["128"], False), (["256"], True)],
    ]
    # the recipe's own value stands in both lists and is one run
    assert list(sweep.runs) == ["margin=0.1", "margin=0.2", "joint=128"]
    assert sweep.blocks[1][1].runs == ("margin=0.2",)
    assert sweep.runs["margin=0.2"] == load_recipe("scenes", ["model.text_projection=true"])
    assert sweep.runs["joint=128"].model.joint == 128
    assert sweep.runs["joint=128"].stage[1].objective.margin == 0.2


def test_a_grid_has_all_combinations_and_seeds_multiply_them():
    sweep = plan_sweep("scenes", [f"{MARGIN}=0.1,0.2", f"{MARGIN_1}=0.2,0.3"], (), (0, 5), grid=True)
    assert len(sweep.blocks) == 1
    assert [row.is_default for row in sweep.blocks[0]] == [False, False, True, False]
    assert len(sweep.runs) == 8
    first = f"margin=0.1,{MARGIN_1}=0.2"
    assert sweep.blocks[0][0].runs == (f"{first},seed=0", f"{first},seed=5")
    recipe = sweep.runs[f"{first},seed=5"]
    assert (recipe.seed, recipe.stage[0].objective.margin, recipe.stage[1].objective.margin) == (5, 0.2, 0.1)


def test_names_are_safe_for_files_and_do_not_clash():
    values = "['train'],['restval'],['train','restval']"
    sweep = plan_sweep("scenes", [f"stage.2.splits={values}", f"{MARGIN}=0.1", f"{MARGIN_1}=0.1,1e-3"])
    assert len(sweep.runs) == 6
    names = list(sweep.runs)
    assert all(re.fullmatch(r"[A-Za-z0-9._+=,-]+", name) for name in names)
    assert names[3:] == ["margin=0.1", f"{MARGIN_1}=0.1", f"{MARGIN_1}=1e-3"]
    assert all(len(name) < 100 for name in plan_sweep("scenes", ["text.vectors=" + "x" * 300]).runs)


def refused(*over, overrides=(), **more):
    with pytest.raises(RecipeError) as error:
        plan_sweep("scenes", over, overrides, **more)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_mistakes_are_named_with_the_nearest_name():
    assert "stage.2.objective: unknown key 'marign'; did you mean 'margin'?" in refused("stage.2.objective.marign=1,2")
    assert "unknown key 'stage.1.epoch'; did you mean 'epochs'?" in refused("stage.1.epoch=1,2")
    assert refused("stage.3.epochs=1,2").startswith("--over stage.3.epochs=1: there are stages 1 to 2, not '3'")
    assert refused("a=1", overrides=["stage.3.epochs=1"]).startswith("--set stage.3.epochs=1: there are stages 1 to 2")
    assert "stage.2.epochs = 'x'" in refused("stage.2.epochs=1,x")  # the last value counts as much as the first
    assert "named twice; list all its values in one --over" in refused(f"{MARGIN}=0.1", f" {MARGIN} =0.2")
    assert "leave one of them out" in refused("seed=1,2", seeds=(0,))
    assert "leave one of them out" in refused(f"{MARGIN}=0.1", overrides=["seed=3"], seeds=(0,))
