"""Planned runs: equal runs have equal keys, and all that changes a result changes the key."""

import pytest

from diptych.errors import RecipeError
from diptych.reproduction.planned_run import Effort, RunMaker, run_content
from support.claims import TINY, claim_files_of

MAKER = RunMaker("small", "digest")


def plan(files, name, seed=0, maker=MAKER):
    runs = {}
    return maker.run(files["tiny"], name, seed, runs), runs


def test_a_run_is_laid_over_the_one_that_it_is_like(tiny_claims):
    content = run_content(tiny_claims["tiny"], "max", "small")
    assert content["stage"][1]["objective"]["negatives"] == "max"
    assert content["model"]["joint"] == 16
    assert run_content(tiny_claims["tiny"], "max", "full")["model"]["image"]["backbone"] == "vgg19"
    assert "paper" not in run_content(tiny_claims["tiny"], "max", "full")


def test_keys_depend_on_everything_but_names(tiny_claims, tmp_path):
    key = plan(tiny_claims, "sum")[0].key
    assert key.startswith("vse-0-")
    renamed = claim_files_of(tmp_path, TINY.replace('title = "sum of hinges"', 'title = "another"'))
    assert plan(renamed, "sum")[0].key == key
    others = [
        plan(tiny_claims, "max")[0],
        plan(tiny_claims, "sum", seed=1)[0],
        plan(tiny_claims, "sum", maker=RunMaker("full", "digest"))[0],
        plan(tiny_claims, "sum", maker=RunMaker("small", "other"))[0],
    ]
    assert len({key, *(each.key for each in others)}) == 5


def test_other_runs_are_named_by_their_keys_and_then_by_their_folders(tiny_claims, tmp_path):
    offline, runs = plan(tiny_claims, "offline", seed=2)
    first = plan(tiny_claims, "sum", seed=2)[0]
    assert runs.keys() == {offline.key, first.key}
    assert [(lists.run, lists.top_texts, lists.top_images) for lists in offline.lists] == [(first.key, 5, 3)]
    assert offline.start is None
    assert offline.in_folder(tmp_path).stage[1].offline.lists == str(tmp_path / first.key)
    continued, runs = plan(tiny_claims, "continued")
    assert continued.start == plan(tiny_claims, "sum")[0].key
    assert continued.in_folder(tmp_path).stage[0].start == str(tmp_path / continued.start)


def test_the_effort_is_that_of_the_final_weights(tiny_claims):
    first, runs = plan(tiny_claims, "sum")
    assert first.effort(runs) == Effort(2, 2 / 16, frozenset({"train"}))
    continued, runs = plan(tiny_claims, "continued")
    assert continued.effort(runs).epochs == 4
    stage = first.recipe.stage[1].model_copy(update={"start": "scratch"})
    again = first.recipe.model_copy(update={"stage": (first.recipe.stage[0], stage)})
    assert type(first)(first.key, "", again).effort({}).epochs == 1


def test_a_prefix_has_the_key_of_a_run_with_those_stages(tiny_claims):
    first, second = (plan(tiny_claims, name)[0] for name in ("sum", "max"))
    assert first.prefix(1).key == second.prefix(1).key != first.key
    assert first.prefix(2).key == first.key != second.prefix(2).key


def test_the_pace_is_inherited_unless_it_is_stated(tiny_claims):
    paces = {name: plan(tiny_claims, name)[0].pace for name in ("sum", "max", "offline", "continued")}
    assert paces == {"sum": 2.0, "max": 2.0, "offline": 4.0, "continued": 2.0}
    assert plan(tiny_claims, "max", maker=RunMaker("full", ""))[0].pace is None


def test_word_vectors_are_part_of_the_key_by_their_content(tmp_path):
    content = TINY.replace('small.recipe = "scenes"', 'small.recipe = "scenes"\nset.text.vectors = "option:vectors"')
    files = claim_files_of(tmp_path, content)
    with pytest.raises(RecipeError, match="name their file with --vectors"):
        plan(files, "sum")
    keys = []
    for name, words in (("a", "cat 1 2\n"), ("b", "cat 1 2\n"), ("c", "cat 1 3\n")):
        (tmp_path / name).write_text(words)
        run = plan(files, "sum", maker=RunMaker("small", "digest", tmp_path / name))[0]
        assert run.in_folder(tmp_path).text.vectors == str(tmp_path / name)
        keys.append(run.key)
    assert keys[0] == keys[1] != keys[2]


def test_a_run_without_a_recipe_in_the_profile_is_an_error(tmp_path):
    files = claim_files_of(tmp_path, TINY.replace('full.recipe = "vse0-1c-vgg19"', ""))
    with pytest.raises(RecipeError, match="the run 'sum' is not defined in the profile full"):
        plan(files, "max", maker=RunMaker("full", ""))
