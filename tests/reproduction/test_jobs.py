"""Performing a plan: one after another, side by side, with failures, and what is deleted on the way."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from diptych.errors import RecipeError
from diptych.reproduction.claims import find_claims
from diptych.reproduction.jobs import perform
from diptych.reproduction.plan import make_plan
from diptych.reproduction.records import Record
from diptych.reproduction.reproduce import NoDisplay
from diptych.reproduction.tasks import MineTask, TrainTask, Workplace

CLAIM = ["tiny.max-beats-sum"]


class Recording(NoDisplay):
    def __init__(self, on_begin=lambda _: None):
        self.begun, self.ended, self.errors, self.on_begin = [], [], [], on_begin

    def begin(self, task):
        self.begun.append(task.id)
        self.on_begin(task)

    def end(self, task, error):
        self.ended.append(task.id)
        self.errors.append(error)


@pytest.fixture
def place(corpus, tmp_path):
    return Workplace(tmp_path / "into", corpus, tmp_path / "features", "cpu")


def plan(files, corpus, place, names=("all",)):
    return make_plan(find_claims(names, files), corpus, place.into, seeds=(0, 1, 2))


def records(place):
    return {file.stem: Record.load(place.records, file.stem) for file in place.records.glob("*.json")}


def test_tasks_are_performed_in_order_and_weights_deleted_when_nobody_needs_them(tiny_claims, corpus, place):
    made = plan(tiny_claims, corpus, place, CLAIM)
    kept = {made.claims[0].keys["sum"][0]}
    display = Recording()
    outcome = perform(made, place, display, keep=kept.__contains__)
    assert display.begun == display.ended == list(made.tasks)
    assert outcome.done == set(made.tasks)
    assert (outcome.failed, outcome.is_out_of_time) == ({}, False)
    assert {folder.name for folder in place.runs.iterdir()} == kept
    assert len(records(place)) == 6


def test_a_failure_ends_only_what_needs_it(tiny_claims, corpus, place, monkeypatch):
    def fail(self, _place):
        raise RecipeError("cannot mine")

    monkeypatch.setattr(MineTask, "perform", fail)
    made = plan(tiny_claims, corpus, place)
    display = Recording()
    outcome = perform(made, place, display)
    offline = {task.id for task in made.tasks.values() if isinstance(task, TrainTask) and task.run.lists}
    mined = {task.id for task in made.tasks.values() if isinstance(task, MineTask)}
    assert outcome.failed == dict.fromkeys(mined | offline, "cannot mine")
    assert outcome.done == set(made.tasks) - mined - offline
    assert set(display.errors) == {None, "cannot mine"}
    assert not offline & set(display.begun)


def test_after_the_deadline_nothing_begins(tiny_claims, corpus, place):
    made = plan(tiny_claims, corpus, place, CLAIM)
    over = replace(place, deadline=time.monotonic() - 1)
    display = Recording()
    outcome = perform(made, over, display)
    assert outcome.is_out_of_time
    assert not display.begun
    assert not outcome.done


def test_an_interruption_leaves_what_is_done_and_the_rest_continues(tiny_claims, corpus, place):
    made = plan(tiny_claims, corpus, place, CLAIM)

    def interrupt(task):
        if task.id == list(made.tasks)[2]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(made, place, Recording(interrupt))
    rest = plan(tiny_claims, corpus, place, CLAIM)
    assert 0 < len(rest.tasks) < len(made.tasks)
    perform(rest, place, Recording())
    assert len(records(place)) == 6


@pytest.mark.long
def test_two_jobs_leave_the_same_records_as_one(tiny_claims, corpus, place, reproduced):
    made = plan(tiny_claims, corpus, place, CLAIM)
    outcome = perform(made, place, Recording(), jobs=2)
    assert outcome.done == set(made.tasks)
    assert not list(place.runs.iterdir())
    for key, record in records(place).items():
        alone = Record.load(reproduced[0].into / "records", key)
        assert record.header.metrics == alone.header.metrics
        assert (record.arrays["image_ranks"] == alone.arrays["image_ranks"]).all()


@pytest.mark.long
def test_ctrl_c_stops_the_workers_too(tiny_claims, corpus, place):
    made = plan(tiny_claims, corpus, place, CLAIM)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        perform(made, place, Recording(lambda _: timer.is_alive() or timer.start()), jobs=2)
    perform(plan(tiny_claims, corpus, place, CLAIM), place, Recording())
    assert len(records(place)) == 6
