"""What is said of a training whose loss stays at its value for equal scores, from histories of epochs."""

import dataclasses
import math
from pathlib import Path

import pytest

from diptych.objectives.hinge import Hinge
from diptych.training.engine.collapse import CollapseWatch, collapse_patience
from diptych.training.engine.events import EpochEnd, StageStart, TrainingStart

STEPS = 200  # per epoch, which is also the patience
CHANCE = 3.2  # rsum of a random order of 1,000 images with five texts each
EPOCH = EpochEnd(2, 1, 30, STEPS, STEPS, {}, "", 0.4, {}, 0.001, {}, {}, is_best=False, seconds=1.0)


class History:
    """Tells a watch of epochs of a stage and keeps its messages."""

    def __init__(self, chance=CHANCE, epochs=30, select="rsum"):
        self.sent, self.watch, self.epoch, self.steps, self.select = [], CollapseWatch(), 0, 0, select
        self.watch.on_start(TrainingStart(Path("run"), None, False, 0, self.sent.append))
        self.start(chance, epochs)

    def start(self, chance=CHANCE, epochs=30):
        objective = Hinge(margin=0.2)
        self.watch.on_stage_start(StageStart(2, 2, epochs * STEPS, STEPS, 0, objective, self.select, chance))

    def epochs(self, *recalls, collapsed=True, spread=0.02):
        """Epochs with these recalls on val, whose steps have all looked collapsed, or only some of them."""
        for recall in recalls:
            self.epoch += 1
            self.steps = self.steps + STEPS if collapsed else 20
            self.watch.on_epoch_end(
                dataclasses.replace(
                    EPOCH,
                    epoch=self.epoch,
                    metrics={self.select: recall},
                    collapsed_steps=self.steps,
                    score_range=spread,
                )
            )
        return self

    @property
    def events(self):
        return [(message.record["event"], message.record["epoch"]) for message in self.sent]


def test_a_plateau_with_rising_recall_is_not_worth_a_word():
    """As reported: VSE++ on 6,000 photos was called collapsed in the fourth epoch."""
    history = History().epochs(28, 53, 76, 101)
    assert history.sent == []


def test_a_plateau_without_rising_recall_is_called_a_plateau_once():
    history = History().epochs(28, 53, 53, 52, 51)
    assert history.events == [("plateau", 3)]
    [message] = history.sent
    assert message.text.startswith("plateau for 600 steps now, and rsum on val does not rise: ")
    assert "2 x margin per pair, as if all embeddings were equal; add a first stage with one epoch" in message.text
    assert message.text.endswith("; or wait, as some plateaus end after a few epochs")
    assert message.record["message"] == message.text
    assert message.record["step"] == STEPS
    assert "collapsed" not in message.text


def test_recall_at_chance_is_a_plateau_at_first_and_a_collapse_after_five_times_the_patience():
    history = History().epochs(3.1, 3.3, 3.0, 3.6, 3.2, 3.3, 3.1)
    assert history.events == [("plateau", 1), ("collapsed", 5)]
    assert history.sent[0].text.startswith(
        "plateau for 200 steps now, and rsum on val is 3.1 where a random order has 3.2: "
    )
    assert history.sent[1].text.startswith(
        "collapsed for 1,000 steps now, and rsum on val is 3.2 where a random order has 3.2: "
    )
    assert "or wait" not in history.sent[1].text


def test_equal_scores_are_a_collapse_at_once():
    """As the squared score of order embeddings from scratch: recall 0, because ties count against the model."""
    history = History().epochs(0.0, 0.0, 0.0, spread=5e-6)
    assert history.events == [("collapsed", 1)]
    assert history.sent[0].text.startswith("collapsed for 200 steps now, all scores are equal: ")


def test_equal_scores_are_a_collapse_even_if_recall_was_high_before():
    history = History().epochs(200, 210, collapsed=False).epochs(12.0, 0.0, spread=5e-6)
    assert history.events == [("collapsed", 3)]


def test_recall_that_varies_around_chance_does_not_rise():
    assert History().epochs(3.3, 3.6, 4.2).events == [("plateau", 1)]
    assert History().epochs(5.0, 5.5, 6.0).events == []


def test_a_run_that_leaves_chance_is_not_called_collapsed():
    history = History().epochs(3.1, 3.3, 13.6, 40.0)
    assert history.events == [("plateau", 1)]


def test_each_plateau_is_reported_after_training_has_recovered():
    history = History().epochs(3.1, 3.2).epochs(60, 90, collapsed=False).epochs(80, 70, 60)
    assert history.events == [("plateau", 1), ("plateau", 5)]


def test_a_stage_forgets_the_recall_of_the_one_before():
    history = History().epochs(300, 310, collapsed=False)
    history.start()
    assert history.epochs(50, 70).sent == []


def test_without_a_known_chance_only_recall_that_does_not_rise_is_a_plateau():
    """As for phrases."""
    assert History(chance=None, select="phrase_sum").epochs(3.1, 3.2, 3.3).sent == []
    history = History(chance=None, select="phrase_sum").epochs(3.1, 3.1, *[3.0] * 10)
    assert history.events == [("plateau", 2)]


@pytest.mark.parametrize("recall", [1.0, 50.0])
def test_fewer_steps_than_the_patience_say_nothing(recall):
    assert History().epochs(recall, recall, recall, collapsed=False, spread=0.0).sent == []


def test_an_epoch_without_a_batch_since_a_resume_is_judged_by_its_recall():
    assert History().epochs(3.1, spread=math.nan).events == [("plateau", 1)]


@pytest.mark.parametrize(
    ("steps", "per_epoch", "patience"), [(3000, 50, 100), (3000, 400, 400), (90, 30, 30), (2, 1, 1)]
)
def test_patience_is_an_epoch_but_a_third_of_a_short_stage(steps, per_epoch, patience):
    assert collapse_patience(steps, per_epoch) == patience
