from dataclasses import replace

import pytest

from diptych.errors import RunError
from diptych.objectives.hinge import Hinge
from diptych.training.engine.events import Message, Skipped, StageStart, StepEnd, TrainingStart
from diptych.training.engine.journal import Journal


def line(stage, epoch, step, event="epoch"):
    return {"stage": stage, "epoch": epoch, "step": step, "event": event}


def test_lines_come_back_in_order(tmp_path):
    journal = Journal(tmp_path / "run")
    assert journal.lines() == []
    for number in (1, 2):
        journal.add(line(1, number, 3))
    assert [entry["epoch"] for entry in journal.lines()] == [1, 2]


def test_rewinding_keeps_what_the_snapshot_knows(tmp_path):
    journal = Journal(tmp_path)
    for place in ((1, 1, 3), (1, 2, 1), (1, 2, 3), (2, 1, 3)):
        journal.add(line(*place, "skipped"))
    journal.rewind(1, 2, 1)
    assert [(entry["epoch"], entry["step"]) for entry in journal.lines()] == [(1, 3), (2, 1)]


def test_rewinding_to_the_last_step_of_an_epoch_drops_its_line_which_is_written_again(tmp_path):
    journal = Journal(tmp_path)
    for place in ((1, 1, 3), (1, 2, 3)):
        journal.add(line(*place, "skipped"))
        journal.add(line(*place))
    journal.rewind(1, 2, 3)
    assert [(entry["epoch"], entry["event"]) for entry in journal.lines()] == [
        (1, "skipped"),
        (1, "epoch"),
        (2, "skipped"),
    ]
    journal.rewind(1, 2, 0)  # the snapshot after epoch 1
    assert [(entry["epoch"], entry["event"]) for entry in journal.lines()] == [(1, "skipped"), (1, "epoch")]
    assert journal.finished_steps() == 3


def test_an_image_is_named_once_per_stage_and_not_again_after_a_resume(tmp_path):
    step = StepEnd(1, 2, 3, 6, {"hinge": 0.4}, 0.4, 0.001, 4, 10.0, skipped=(Skipped("a", "a.jpg: truncated"),))
    messages = []
    for stage in (1, 1, 2):  # the second is a resumed one
        journal = Journal(tmp_path)
        journal.on_start(TrainingStart(tmp_path, None, False, 0, messages.append))
        journal.on_stage_start(StageStart(stage, 2, 9, 3, 0, Hinge()))
        for _ in range(2):
            journal.on_step(replace(step, stage=stage))
            for message in messages[len(journal.lines()) :]:
                journal.on_message(message)
    assert [message.text for message in messages] == ["skipped a.jpg: truncated"] * 2
    place = {"epoch": 2, "step": 3, "event": "skipped", "image": "a", "message": "a.jpg: truncated"}
    assert journal.lines() == [{"stage": 1, **place}, {"stage": 2, **place}]


def test_a_message_without_a_record_is_not_written(tmp_path):
    journal = Journal(tmp_path)
    journal.on_message(Message("for the user"))
    assert journal.lines() == []


@pytest.mark.parametrize("place", [(1, 0, 0), (1, 2, 3)], ids=["the start", "an epoch"])
def test_an_epoch_that_is_measured_again_does_not_keep_its_line(place, tmp_path):
    """The line was written, and the process was killed before the snapshot that moves on."""
    journal = Journal(tmp_path)
    journal.add(line(*place, "skipped"))
    journal.add(line(*place))
    journal.rewind(*place)
    assert [entry["event"] for entry in journal.lines()] == ["skipped"]


def test_a_half_written_last_line_is_passed_over_and_a_broken_one_named(tmp_path):
    journal = Journal(tmp_path)
    journal.add(line(1, 1, 3))
    with journal.path.open("a") as file:
        file.write('{"stage": 1, "ep')
    assert len(journal.lines()) == 1
    for first in ("broken", "3", "{}", '{"stage": "x", "epoch": 1, "step": 1, "event": "epoch"}', "\xff"):
        journal.path.write_bytes(first.encode("latin-1") + b'\n{"stage": 1}\n')
        with pytest.raises(RunError, match=r"metrics\.jsonl:1"):
            journal.lines()
