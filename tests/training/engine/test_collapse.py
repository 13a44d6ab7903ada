import pytest
import torch

from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import ScoreSummary
from diptych.training.engine.collapse import CollapseDetector, collapse_patience

EQUAL_SCORES = ScoreSummary.of(torch.full((4, 4), 0.3), torch.eye(4, dtype=torch.bool))
PLATEAU = 2 * 4 * 0.2


def test_a_collapse_is_reported_once_after_enough_steps_in_a_row():
    detector = CollapseDetector(Hinge(margin=0.2), 3)
    found = [detector.collapsed_now(PLATEAU, EQUAL_SCORES) for _ in range(5)]
    assert found == [False, False, True, False, False]


def test_a_step_with_another_loss_starts_the_count_again():
    detector = CollapseDetector(Hinge(margin=0.2), 3)
    detector.collapsed_now(PLATEAU, EQUAL_SCORES)
    assert detector.steps == 1
    detector.collapsed_now(0.9, EQUAL_SCORES)
    assert detector.steps == 0


@pytest.mark.parametrize(
    ("steps", "per_epoch", "patience"), [(3000, 50, 100), (3000, 400, 400), (90, 30, 30), (2, 1, 1)]
)
def test_patience_is_an_epoch_but_a_third_of_a_short_stage(steps, per_epoch, patience):
    assert collapse_patience(steps, per_epoch) == patience
