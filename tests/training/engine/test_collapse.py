from pathlib import Path

import pytest

from diptych.objectives.hinge import Hinge
from diptych.training.engine.collapse import CollapseWatch, collapse_patience
from diptych.training.engine.events import StageStart, StepEnd, TrainingStart


def reported(counts, steps=9):
    """The messages of a stage whose steps have looked collapsed this many times in a row."""
    sent = []
    watch = CollapseWatch()
    watch.on_start(TrainingStart(Path("run"), None, False, 0, sent.append))
    watch.on_stage_start(StageStart(2, 2, steps, steps_per_epoch=3, steps_done=0, objective=Hinge(margin=0.2)))
    for number, count in enumerate(counts, 1):
        terms = {} if count is None else {"hinge": 0.4}
        collapsed = 3 if count is None else count
        watch.on_step(StepEnd(2, 1, number, number, terms, 0.4, 0.001, 4, 10.0, collapsed_steps=collapsed))
    return sent


def test_a_collapse_is_reported_once_after_enough_steps_in_a_row():
    [message] = reported([1, 2, 3, 4, 5])
    assert message.text.startswith("collapsed for 3 steps now: ")
    assert "2 x margin" in message.text
    assert message.record == {"stage": 2, "epoch": 1, "step": 3, "event": "collapsed", "message": message.text}


def test_each_collapse_is_reported():
    assert len(reported([1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4])) == 2


def test_a_batch_without_readable_images_is_no_further_step():
    assert len(reported([1, 2, 3, None, None])) == 1


@pytest.mark.parametrize(
    ("steps", "per_epoch", "patience"), [(3000, 50, 100), (3000, 400, 400), (90, 30, 30), (2, 1, 1)]
)
def test_patience_is_an_epoch_but_a_third_of_a_short_stage(steps, per_epoch, patience):
    assert collapse_patience(steps, per_epoch) == patience
