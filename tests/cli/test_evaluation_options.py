from __future__ import annotations

from pathlib import Path

import pytest

from diptych.cli.evaluation_options import EvaluationOptions, parse_rerank_depths
from diptych.errors import ScoreError

DEFAULTS = {
    "split": "test",
    "folds": 1,
    "gallery": None,
    "rerank_depths": [],
    "retriever": None,
    "cross_retrieval": False,
    "score_overlap": False,
    "average_precision": False,
    "within": None,
    "phrase_run": None,
    "phrase_share": 0.2,
    "phrase_source": "annotation",
    "batch_statistics": "running",
    "report": False,
}
# A value with which each option counts as given.
GIVEN = {
    "--rerank": {"retriever": "runs/vse"},
    "--within": {"within": "texts"},
    "--phrases": {"phrase_run": "runs/phrases"},
    "--report": {"report": True},
    "--cross": {"cross_retrieval": True},
    "--overlap": {"score_overlap": True},
    "--map": {"average_precision": True},
    "--folds": {"folds": 2},
    "--gallery": {"gallery": 5},
    "--batch-statistics": {"batch_statistics": "test"},
    "--eccv": {"eccv": True},
    "--grades": {"grades": Path("grades.csv")},
}
COMBINABLE = {
    *("--within --gallery", "--within --batch-statistics"),
    *("--phrases --folds", "--phrases --gallery", "--phrases --cross", "--phrases --overlap", "--phrases --map"),
    *("--phrases --batch-statistics", "--report --cross", "--report --overlap", "--report --map"),
    *("--cross --overlap", "--cross --map", "--cross --batch-statistics", "--overlap --map"),
    *("--overlap --batch-statistics", "--map --folds", "--map --gallery", "--map --batch-statistics"),
    *("--folds --gallery", "--folds --batch-statistics", "--gallery --batch-statistics"),
    *("--batch-statistics --eccv", "--batch-statistics --grades"),
}
PAIRS = [(one, other) for number, one in enumerate(GIVEN) for other in list(GIVEN)[number + 1 :]]


def options(*given: str) -> EvaluationOptions:
    values = dict(DEFAULTS)
    for option in given:
        values |= GIVEN[option]
    return EvaluationOptions(**values)


@pytest.mark.parametrize("option", GIVEN)
def test_every_option_can_be_used_alone(option):
    options(option).check()


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_options_are_combinable_or_the_error_names_what_to_remove(one, other):
    if f"{one} {other}" in COMBINABLE:
        options(one, other).check()
    else:
        with pytest.raises(ScoreError, match=rf"; remove ({one}|{other})$"):
            options(one, other).check()


def test_the_error_names_all_options_that_do_not_fit():
    with pytest.raises(ScoreError, match=r"^--rerank measures one gallery; remove --cross, --folds$"):
        options("--rerank", "--folds", "--cross").check()


def test_what_a_score_matrix_supports():
    options("--folds", "--gallery", "--map").check_for_matrix()
    options("--eccv").check_for_matrix()
    options("--grades").check_for_matrix()
    with pytest.raises(ScoreError, match=r"SCORES.npy DATA; remove --cross$"):
        options("--cross", "--map").check_for_matrix()
    with pytest.raises(ScoreError, match=r"^--eccv measures COCO's test split by several protocols; remove --folds$"):
        options("--eccv", "--folds").check_for_matrix()


def test_what_people_judged_replaces_retrieval_by_groups():
    assert options("--eccv").by_judgements
    assert options("--grades").by_judgements
    assert not options("--folds", "--map").by_judgements


def test_what_ranks_do_not_share_is_refused():
    options("--folds", "--gallery", "--map", "--report", "--cross", "--overlap").check_for_ranks()
    with pytest.raises(ScoreError, match=r"share retrieval between images and texts; remove --within$"):
        options("--within").check_for_ranks()


def test_rerank_depths_are_numbers_and_all():
    assert parse_rerank_depths(None) == []
    assert parse_rerank_depths("5") == [5]
    assert parse_rerank_depths("10, 20,all") == [10, 20, None]


@pytest.mark.parametrize("text", ["0", "-3", "5,ten", "", "1.5", "²", "all", "all,all"])
def test_other_rerank_depths_are_refused(text):
    with pytest.raises(ScoreError, match=r"^--rerank"):
        parse_rerank_depths(text)
