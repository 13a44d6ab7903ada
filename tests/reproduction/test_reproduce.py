"""The whole: what is asked for is planned, performed, judged, and found again."""

from dataclasses import replace

import pytest

from diptych.errors import RecipeError, RunError
from diptych.reproduction.reproduce import ReproductionRequest, reproduce, results


def test_all_claims_that_the_corpus_allows_are_judged(reproduced):
    request, found = reproduced
    assert [result.named.id for result in found.results] == ["tiny.max-beats-sum", "tiny.many-things"]
    assert all(result.seeds == [0, 1, 2] for result in found.results)
    assert {result.verdict for result in found.results} <= {"holds", "does not hold", "undecided"}
    assert [len(result.measured) for result in found.results] == [1, 5]
    assert [each.named.id for each in found.not_applicable] == ["tiny.people"]
    shared = sum(result.seconds for result in found.results)
    assert 0 < found.seconds < shared  # runs that claims share are counted once
    assert (request.into / "data.json").is_file()


def test_the_same_request_again_does_nothing_and_finds_the_same(reproduced):
    request, found = reproduced
    plan, timetable = request.plan()
    assert not plan.tasks
    assert timetable.total == 0
    again = reproduce(request, plan)
    assert [[each.effect for each in result.measured] for result in again.results] == [
        [each.effect for each in result.measured] for result in found.results
    ]


def test_cheaper_claims_come_first(reproduced, tmp_path):
    request, _ = reproduced
    plan, _ = replace(request, into=tmp_path).plan()
    assert [claim.named.id for claim in plan.claims] == ["tiny.max-beats-sum", "tiny.many-things"]
    first = {task.id for task in plan.tasks_of(plan.claims[0])}
    assert set(list(plan.tasks)[: len(first)]) == first


def test_more_seeds_add_to_those_that_are_there(reproduced):
    request, _ = reproduced
    plan, _ = replace(request, seeds=4, claims=["tiny.max-beats-sum"]).plan()
    assert {task.run.recipe.seed for task in plan.tasks.values()} == {3}
    found = results(request, plan)
    assert [result.seeds for result in found] == [[0, 1, 2], [0, 1, 2]]  # also of the claim that was measured before


def test_weights_that_others_start_from_stay(reproduced, tmp_path, corpus):
    request = ReproductionRequest(["tiny.many-things"], corpus, tmp_path / "into", features=tmp_path, device="cpu")
    plan, _ = request.plan()
    reproduce(request, plan)
    starts = {plan.claims[0].keys["sum"][seed] for seed in range(3)}
    assert {folder.name for folder in (tmp_path / "into" / "runs").iterdir()} == starts
    kept = {folder.name for folder in (reproduced[0].into / "runs").iterdir()}  # where all weights are kept
    assert len(kept) > len(starts)


def test_a_spent_budget_leaves_claims_unmeasured(corpus, tmp_path):
    request = ReproductionRequest(["all"], corpus, tmp_path / "into", features=tmp_path, device="cpu")
    found = reproduce(request, request.plan()[0], budget=0)
    assert found.outcome.is_out_of_time
    assert {(result.verdict, result.reason) for result in found.results} == {
        ("not measured", "its runs are not finished yet")
    }


def test_wrong_requests_are_refused(corpus, tmp_path):
    request = ReproductionRequest(["tiny.max"], corpus, tmp_path)
    with pytest.raises(RecipeError, match=r"did you mean 'tiny' or 'tiny.max-beats-sum'"):
        request.plan()
    (tmp_path / "recipe.toml").write_text("")
    request = replace(request, claims=["all"])
    with pytest.raises(RunError, match="contains a run; name another folder with --into"):
        reproduce(request, request.plan()[0])
