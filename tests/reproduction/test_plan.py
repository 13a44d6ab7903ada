"""Plans: runs are shared, tasks are in an order in which they can be performed, and what is finished is left out."""

from dataclasses import replace

import numpy as np
import pytest

from diptych.errors import RecipeError
from diptych.reproduction.claims import find_claims
from diptych.reproduction.plan import make_plan
from diptych.reproduction.tasks import MineTask, TogetherTask, TrainTask
from support.claims import TINY, claim_files_of

SEEDS = (0, 1, 2)


def plan(files, corpus, into, names=("all",), seeds=SEEDS):
    return make_plan(find_claims(names, files), corpus, into, seeds=seeds)


def kinds(plan):
    return [type(task).__name__ for task in plan.tasks.values()]


def test_a_plan_has_each_run_once_and_its_common_stage_once(tiny_claims, corpus, tmp_path):
    made = plan(tiny_claims, corpus, tmp_path)
    assert [claim.named.id for claim in made.claims] == ["tiny.max-beats-sum", "tiny.many-things"]
    counts = {kind: kinds(made).count(kind) for kind in set(kinds(made))}
    # sum, max, offline and continued; the first stage of the first three; for each of three seeds
    assert counts == {"TrainTask": 3 * (4 + 1), "MineTask": 3, "TogetherTask": 3}
    shared = [task for task in made.tasks.values() if isinstance(task, TrainTask) and not task.is_measured]
    assert len(shared) == 3
    begun = [task for task in made.tasks.values() if isinstance(task, TrainTask) and task.prefix is not None]
    assert len(begun) == 9
    assert {task.shared_epochs for task in begun} == {1}
    assert {task.prefix for task in begun} == {task.run.key for task in shared}
    assert {task.pairs for task in begun} == {80}


def test_tasks_follow_what_they_need(tiny_claims, corpus, tmp_path):
    made = plan(tiny_claims, corpus, tmp_path)
    done = set()
    for task in made.tasks.values():
        assert set(task.needs) <= done, task
        done.add(task.id)


def test_claims_know_their_tasks(tiny_claims, corpus, tmp_path):
    made = plan(tiny_claims, corpus, tmp_path)
    first, second = (made.tasks_of(claim) for claim in made.claims)
    assert len(first) == 3 * (2 + 1)
    assert len(second) == len(made.tasks)
    assert [task.id for task in second] == list(made.tasks)


def test_weights_are_needed_until_nothing_reads_them(tiny_claims, corpus, tmp_path):
    made = plan(tiny_claims, corpus, tmp_path)
    sums = {made.claims[0].keys["sum"][seed] for seed in SEEDS}
    assert sums <= made.needed_runs(set())
    trained = {task.id for task in made.tasks.values() if isinstance(task, TrainTask)}
    mined = {task.id for task in made.tasks.values() if isinstance(task, MineTask)}
    assert made.needed_runs(trained | mined) == sums | {
        task.key for task in made.tasks.values() if isinstance(task, TogetherTask)
    }
    assert made.needed_runs(set(made.tasks)) == set()


def test_what_the_corpus_lacks_is_said_and_the_rest_goes_on(tiny_claims, corpus, tmp_path):
    made = plan(tiny_claims, corpus, tmp_path)
    assert [(each.named.id, each.reason) for each in made.not_applicable] == [
        ("tiny.people", "no identity of train has several images")
    ]
    texts = np.where(corpus.text_splits == "val", "test", corpus.text_splits)
    images = np.where(corpus.image_splits == "val", "test", corpus.image_splits)
    without = plan(tiny_claims, replace(corpus, image_splits=images, text_splits=texts), tmp_path)
    assert not without.claims
    assert not without.tasks
    assert "the corpus has no split val" in without.not_applicable[0].reason


def test_a_run_that_the_corpus_does_not_allow_is_a_reason(corpus, tmp_path):
    wrong = TINY.replace('small.recipe = "scenes"', 'small.recipe = "scenes"\nset.stage.1.splits = ["restval"]')
    made = plan(claim_files_of(tmp_path, wrong), corpus, tmp_path)
    assert not made.claims
    assert "trains on the split restval, which has no images" in made.not_applicable[0].reason


def test_sides_of_unequal_effort_are_refused_unless_the_claim_says_why(corpus, tmp_path):
    more = 'small.set.stage.2.epochs = 2\nsmall.set.stage.2.objective.negatives = "max"'
    longer = TINY.replace('small.set.stage.2.objective.negatives = "max"', more)
    made = plan(claim_files_of(tmp_path, longer), corpus, tmp_path)
    reason = next(each.reason for each in made.not_applicable if each.named.id == "tiny.max-beats-sum")
    assert "tiny.max-beats-sum: compares runs of 2 epochs of 0.125 updates and 3 epochs of 0.1875" in reason
    assert [claim.named.id for claim in made.claims] == ["tiny.many-things"]  # which says why


def test_fewer_than_three_seeds_are_refused(tiny_claims, corpus, tmp_path):
    with pytest.raises(RecipeError, match="2 seeds: a claim needs at least 3"):
        plan(tiny_claims, corpus, tmp_path, seeds=(0, 1))


def test_what_is_finished_is_planned_no_more(reproduced, tiny_claims, corpus):
    request, _ = reproduced
    assert not plan(tiny_claims, corpus, request.into).tasks
    more = plan(tiny_claims, corpus, request.into, ["tiny.max-beats-sum"], seeds=range(4))
    assert {task.run.recipe.seed for task in more.tasks.values()} == {3}
    (request.into / "records" / f"{more.claims[0].keys['max'][1]}.json").rename(request.into / "gone")
    try:
        again = plan(tiny_claims, corpus, request.into, ["tiny.max-beats-sum"])
        assert list(again.tasks) == [f"train {more.claims[0].keys['max'][1]}"]
    finally:
        (request.into / "gone").rename(request.into / "records" / f"{more.claims[0].keys['max'][1]}.json")


def test_lists_are_mined_as_long_as_the_longest_that_is_read(corpus, tmp_path):
    longer = TINY.replace(
        "[run.continued]",
        '[run.long]\ntitle = "long"\nlike = "offline"\nsmall.set.stage.2.offline = { top_texts = 4, top_images = 9 }\n'
        "[run.continued]",
    ).replace('higher = ["two"]', 'higher = ["long"]')
    made = plan(claim_files_of(tmp_path, longer), corpus, tmp_path)
    mined = [task for task in made.tasks.values() if isinstance(task, MineTask)]
    assert {(task.top_texts, task.top_images) for task in mined} == {(5, 9)}
