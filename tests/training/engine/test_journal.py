import pytest

from diptych.errors import RunError
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
    for place in ((1, 1, 3), (1, 2, 1, "skipped"), (1, 2, 3), (2, 1, 3)):
        journal.add(line(*place))
    journal.rewind(1, 2, 1)
    assert [(entry["epoch"], entry["step"]) for entry in journal.lines()] == [(1, 3), (2, 1)]


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
