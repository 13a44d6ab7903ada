"""When tasks end, what fits a budget, and durations as people write them."""

import pytest

from diptych.errors import RecipeError
from diptych.reproduction.claims import find_claims
from diptych.reproduction.plan import make_plan
from diptych.reproduction.speeds import Estimate
from diptych.reproduction.tasks import MineTask, TogetherTask
from diptych.reproduction.timetable import Timetable, duration, read_duration


class Fixed:
    """Every training takes so many seconds, everything else one."""

    def __init__(self, seconds):
        self.seconds = seconds

    def of(self, task):
        return Estimate(1.0 if isinstance(task, MineTask | TogetherTask) else self.seconds, "stated")


@pytest.fixture
def plan(tiny_claims, corpus, tmp_path):
    return make_plan(find_claims(["all"], tiny_claims), corpus, tmp_path, seeds=(0, 1, 2))


def test_one_job_takes_as_long_as_all_tasks_and_two_half_as_long(plan):
    one, two = (Timetable.of(plan, Fixed(10.0), jobs) for jobs in (1, 2))
    assert one.total == one.cost(list(plan.tasks.values())) == 15 * 10 + 6
    assert one.total / 2 <= two.total < one.total
    assert one.end(plan.claims[0]) < one.end(plan.claims[1]) == one.total
    for task in plan.tasks.values():
        for need in task.needs:
            assert two.finished[need] <= two.finished[task.id] - two.estimates[task.id].seconds


def test_what_is_unknown_stays_unknown(plan):
    table = Timetable.of(plan, Fixed(None), 2)
    assert table.total is None
    assert table.end(plan.claims[0]) is None
    assert table.cost(plan.tasks_of(plan.claims[0])) is None
    table.check_budget(1.0, "1s")  # nothing is known that speaks against it


def test_a_budget_that_is_too_small_for_one_run_says_the_least(plan):
    table = Timetable.of(plan, Fixed(600.0), 1)
    with pytest.raises(RecipeError, match=r"--budget 5m: too small for one run; the shortest, .* takes about 10 min"):
        table.check_budget(300.0, "5m")
    table.check_budget(601.0, "601s")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("3h", 10800), ("1h30m", 5400), ("0.5h", 1800), ("2 h", 7200), ("45s", 45)]
)
def test_durations_are_read(text, seconds):
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [("3", "write a duration"), ("h3", "write a duration"), ("3x", "unknown unit 'x'"), ("0h", "more than no time")],
)
def test_wrong_durations_are_refused(text, message):
    with pytest.raises(RecipeError, match=message):
        read_duration(text)


def test_durations_are_written():
    assert [duration(each) for each in (None, 12, 99, 120, 5940, 7200)] == [
        *("unknown", "12 s", "99 s", "2 min", "99 min", "2.0 h")
    ]
