"""Times come from records of this machine, or else from stated paces; never from nothing."""

from dataclasses import replace

import pytest

from diptych.reproduction import speeds
from diptych.reproduction.planned_run import RunMaker
from diptych.reproduction.records import RecordHeader
from diptych.reproduction.speeds import Speeds
from diptych.reproduction.tasks import MineTask, TrainTask


@pytest.fixture
def task(tiny_claims):
    return lambda name, seed=0: TrainTask(
        RunMaker("small", "digest").run(tiny_claims["tiny"], name, seed, {}), pairs=1000
    )


def header(task, seconds, machine="this", epochs=2):
    recipe = task.run.recipe.to_dict()
    return RecordHeader(
        key=task.run.key,
        title="",
        diptych="",
        corpus="",
        recipe=recipe,
        metrics={},
        seconds=seconds,
        epochs=epochs,
        pairs=1000,
        machine=machine,
    )


def of(task, headers=(), planned=()):
    return Speeds(headers, 0, planned, machine="this").of(task)


def test_a_record_with_another_seed_gives_the_time(task):
    estimate = of(task("sum"), [header(task("sum", 1), 10.0), header(task("sum", 2), 14.0)])
    assert (estimate.seconds, estimate.source) == (12.0, "measured")
    shared = replace(task("sum"), shared_epochs=1)
    assert of(shared, [header(task("sum", 1), 10.0)]).seconds == 5.0
    offline = of(task("offline"), [header(task("offline", 1), 8.0)])  # whose lists are those of another run
    assert (offline.seconds, offline.source) == (8.0, "measured")


def test_a_record_of_the_same_model_and_objectives_is_nearly_as_good(task):
    estimate = of(task("max"), [header(task("sum", 1), 10.0)])
    assert (estimate.seconds, estimate.source) == (10.0, "measured on a similar run")


def test_a_stated_pace_is_scaled_to_this_machine(task, monkeypatch):
    slower = header(task("sum"), 8.0)  # twice the pace of 2 s per epoch that is stated for it
    estimate = of(task("offline"), [slower], [task("sum").run])
    assert (estimate.seconds, estimate.source) == (16.0, "stated")
    monkeypatch.setattr(speeds, "_calibrate", lambda: 3 * speeds.REFERENCE_SECONDS)
    assert of(task("sum")).seconds == 12.0
    assert of(task("sum"), [header(task("sum"), 8.0, machine="another")]).seconds == 12.0


def test_without_a_pace_nothing_is_pretended(task):
    plain = task("sum")
    estimate = of(replace(plain, run=replace(plain.run, pace=None)))
    assert (estimate.seconds, estimate.source) == (None, "unknown")


def test_measuring_takes_time_too(monkeypatch):
    monkeypatch.setattr(speeds, "_calibrate", lambda: speeds.REFERENCE_SECONDS)
    mining = MineTask("key", "", 3, 3, ("train",))
    assert Speeds((), 5000, (), machine="this").of(mining).seconds == pytest.approx(15)


def test_the_calibration_measures_something():
    assert 0 < speeds._calibrate() < 60
