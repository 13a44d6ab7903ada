"""What the progress display prints to a file and to a terminal."""

import io

import pytest
from rich.console import Console

from diptych.cli.training_bar import TrainingBar
from diptych.objectives.hinge import Hinge
from diptych.training.engine.callbacks import Callbacks
from diptych.training.engine.events import (
    EpochEnd,
    Message,
    Preparation,
    StageStart,
    StepEnd,
    TrainingEnd,
    TrainingStart,
)


def shown(terminal):
    """What a short training shows."""
    output = io.StringIO()
    bar = TrainingBar(Console(file=output, force_terminal=terminal, width=120))
    callbacks = Callbacks([bar])
    with callbacks.training(lambda reason, error: TrainingEnd(None, reason, error, {})):
        callbacks.start(TrainingStart(None, None, False, 0, callbacks.send))
        for done in (0, 2, 2):
            callbacks.send(Preparation("features", done, 2))
        callbacks.send(Message("[not markup] left out", "yellow"))
        callbacks.send(StageStart(1, 2, steps=8, steps_per_epoch=4, steps_done=2, objective=Hinge()))
        callbacks.send(StepEnd(1, 1, 3, 3, {"hinge": 0.25}, 0.5, 0.001, 16, 1234.0))
        for number, is_best, skipped in ((1, True, 0), (2, False, 3)):
            terms, half = {"hinge": 0.5}, {"precision": "float16", "skipped_steps": skipped}
            made = EpochEnd(1, number, 2, 4, 4, {}, "rsum 300.0", 0.5, terms, 0.001, {}, {}, is_best, 1.0, **half)
            callbacks.send(made)
    return output.getvalue()


def test_a_file_gets_lines_and_no_bar():
    assert shown(terminal=False).splitlines() == [
        "features: 2 to do",
        "[not markup] left out",
        "stage 1  epoch 1/2  loss 0.5000  val rsum 300.0  best",
        "stage 1  epoch 2/2  loss 0.5000  val rsum 300.0  3 of 4 steps skipped (overflow in float16)",
    ]


@pytest.mark.parametrize("part", ["[not markup] left out", "stage 1/2", "3/8", "epoch 1  loss 0.5000  1,234 pairs/s"])
def test_a_terminal_gets_a_bar_as_well(part):
    assert part in shown(terminal=True)
