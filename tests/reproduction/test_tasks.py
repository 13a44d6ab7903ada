"""Tasks: interrupted ones continue, and finished ones are not repeated."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from diptych.errors import RunError
from diptych.mining.lists import HardNegativeLists
from diptych.reproduction import tasks
from diptych.reproduction.planned_run import RunMaker
from diptych.reproduction.records import Record, has_record
from diptych.reproduction.tasks import MineTask, OutOfTimeError, TogetherTask, TrainTask, Workplace, is_trained
from diptych.training.recipe_loader import load_recipe


@pytest.fixture
def place(corpus, tmp_path):
    return Workplace(tmp_path / "into", corpus, tmp_path / "features", "cpu")


def training(files, name, **changes):
    return TrainTask(RunMaker("small", "digest").run(files["tiny"], name, 0, {}), pairs=80, **changes)


def prefix_of(task):
    return TrainTask(task.run.prefix(1), 80, is_measured=False)


def test_training_ends_with_a_record_and_the_recipe(tiny_claims, place):
    lines = []
    task = training(tiny_claims, "sum")
    task.perform(replace(place, report=lines.append))
    record = Record.load(place.records, task.run.key)
    assert record.header.title == "sum of hinges"
    assert (record.header.epochs, record.header.pairs) == (2, 80)
    assert record.header.seconds > 0
    assert any(line.startswith("stage 2, epoch 1 of 1, val ") for line in lines)
    assert lines[-1] == "measuring"
    recipe = load_recipe(str(place.into / "recipes" / f"{task.run.key}.toml"))
    assert recipe.trains_like(task.run.recipe)
    assert task.title == "sum of hinges, seed 0"


def test_a_run_that_begins_as_a_copy_ends_as_one_that_was_trained_alone(tiny_claims, place, tmp_path):
    alone = replace(place, into=tmp_path / "alone")
    training(tiny_claims, "max").perform(alone)
    task = training(tiny_claims, "max")
    first = prefix_of(task)
    first.perform(place)
    assert first.title == "max of hinges, stages that several runs share, seed 0"
    assert is_trained(place.runs / first.run.key, first.run)
    assert not has_record(place.records, first.run.key)
    task = replace(task, prefix=first.run.key, shared_epochs=1)
    assert task.needs == (first.id,)
    task.perform(place)
    found, expected = (Record.load(each.records, task.run.key) for each in (place, alone))
    assert np.array_equal(found.arrays["text_ranks"], expected.arrays["text_ranks"])
    assert found.header.curve == expected.header.curve
    assert found.header.epochs == 1  # of its own


def test_at_the_deadline_training_is_saved_and_continues(tiny_claims, place):
    task = training(tiny_claims, "sum")
    with pytest.raises(OutOfTimeError):
        task.perform(replace(place, deadline=time.monotonic() - 1))
    assert not has_record(place.records, task.run.key)
    assert not is_trained(place.runs / task.run.key, task.run)
    cost = place.runs / task.run.key / ".cost.json"
    before = json.loads(cost.read_text())
    assert before["epochs"] == 0
    cost.write_text(json.dumps({**before, "seconds": 1000.0}))
    task.perform(place)
    header = Record.load(place.records, task.run.key).header
    assert header.epochs == 2
    assert header.seconds > 1000  # with the time before the interruption


def test_preparing_a_stage_costs_a_run_nothing(tiny_claims, place, monkeypatch):
    """Features that the first run computes are for all runs."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(tasks.time, "process_time", lambda: float(next(ticks)))
    task = training(tiny_claims, "sum")
    task.perform(place)
    steps = 2 * 5  # 80 pairs in batches of 16, two epochs
    # the clock is read at the start of each stage, after each step and after each epoch
    assert Record.load(place.records, task.run.key).header.seconds == steps + 2


def test_lists_are_mined_and_read(tiny_claims, place):
    base, offline = training(tiny_claims, "sum"), training(tiny_claims, "offline")
    base.perform(place)
    mining = MineTask(base.run.key, "sum of hinges", 5, 3, ("train",))
    assert offline.needs == (mining.id,)
    assert mining.needs == (base.id,)
    mining.perform(place)
    lists = HardNegativeLists.load(place.runs / base.run.key / "lists.safetensors")
    assert (lists.header.top_texts, lists.header.top_images) == (5, 3)
    offline.perform(place)
    assert has_record(place.records, offline.run.key)


def test_runs_are_measured_together(tiny_claims, place):
    task = training(tiny_claims, "sum")
    task.perform(place)
    together = TogetherTask("together-0-x", "twice", (task.run.key, task.run.key))
    assert together.needs == (task.id, task.id)
    together.perform(place)
    both = [Record.load(place.records, key) for key in (task.run.key, "together-0-x")]
    assert both[0].header.metrics["rsum"] == both[1].header.metrics["rsum"]
    assert replace(together, phrases="p").needs[-1] == "train p"


def test_a_run_that_fails_leaves_its_turn_to_others(tiny_claims, place):
    with pytest.raises(RunError, match="no such run"):
        training(tiny_claims, "offline").perform(place)
    assert not [file for file in place.stores.rglob("*") if file.name.endswith(".lock")]
    training(tiny_claims, "sum").perform(place)
