import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.training.engine.schedule import CosineSchedule, StepSchedule


def test_steps_fall_after_every_so_many_epochs():
    schedule = StepSchedule(every=15, factor=0.1)
    assert [schedule.share(progress, 30) for progress in (0, 14, 14.99)] == [1, 1, 1]
    assert schedule.share(15, 30) == schedule.share(29.9, 30) == pytest.approx(0.1)
    assert schedule.share(30, 60) == pytest.approx(0.01)


def test_a_cosine_rises_in_a_line_and_falls_to_nothing():
    schedule = CosineSchedule(name="cosine", warm_up=2.0)
    assert schedule.share(1, 10) == pytest.approx(0.5)
    assert schedule.share(2, 10) == pytest.approx(1)
    assert schedule.share(6, 10) == pytest.approx(0.5)
    assert schedule.share(10, 10) == pytest.approx(0, abs=1e-12)


@given(st.integers(1, 40), st.floats(0, 5), st.floats(0, 1))
def test_a_share_is_a_share(epochs, warm_up, place):
    share = CosineSchedule(name="cosine", warm_up=warm_up).share(place * epochs, epochs)
    assert 0 <= share <= 1
