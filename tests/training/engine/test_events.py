import dataclasses

import pytest

from diptych.training.engine import events
from diptych.training.engine.events import StepEnd


def step(terms):
    return StepEnd(1, 1, 1, 1, terms, 0.5, 0.001, 4, 10.0)


def test_the_loss_of_a_step_is_the_sum_of_its_terms():
    assert step({"hinge": 0.5, "captions": 0.25}).loss == 0.75
    assert step({}).loss == 0


def test_every_event_is_read_only():
    kinds = [value for value in vars(events).values() if dataclasses.is_dataclass(value)]
    assert len(kinds) == 9
    assert all(kind.__dataclass_params__.frozen for kind in kinds)
    with pytest.raises(dataclasses.FrozenInstanceError):
        step({}).rate = 1.0
