from pathlib import Path

import numpy as np
import pytest

from diptych.objectives.hinge import Hinge
from diptych.training.context import StageContext, TrainingContext, best_file, stage_file, training_corpus
from diptych.training.distributed.agreement import Agreement
from diptych.training.engine.callbacks import Callbacks
from diptych.training.recipe import Recipe, Stage
from support.callbacks import RecordingCallback
from support.corpora import corpus_of_groups

RUN = Path("runs/some")


def context(*starts, callback=None):
    stages = tuple(Stage(objective=Hinge(), start=start) for start in starts or ("scratch",))
    callback = callback or RecordingCallback()
    return TrainingContext(
        Recipe(stage=stages),
        corpus_of_groups(),
        "digest",
        RUN,
        0,
        Callbacks([callback]),
        Path("features"),
        Agreement(),
    )


def test_progress_is_reported_and_stops_after_ctrl_c():
    callback = RecordingCallback()
    training = context(callback=callback)
    training.stop_if_interrupted()
    training.progress("features")(1, 3)
    training.interrupted.set()
    with pytest.raises(KeyboardInterrupt):
        training.progress("mining")(2, 3)
    assert callback.preparations == [("features", 1, 3), ("mining", 2, 3)]
    with pytest.raises(KeyboardInterrupt):
        training.stop_if_interrupted()


@pytest.mark.parametrize(
    ("number", "weights"),
    [(1, None), (2, RUN / "stage-1/weights.safetensors"), (3, Path("runs/other/best/weights.safetensors"))],
    ids=["scratch", "previous", "a run"],
)
def test_a_stage_knows_the_weights_that_it_starts_from(number, weights):
    training = context("scratch", "previous", "runs/other")
    stage = StageContext(training, number, None, training.corpus, None, None)
    assert stage.stage is training.recipe.stage[number - 1]
    assert stage.initial_weights == weights
    assert stage.journal.path == RUN / "metrics.jsonl"


def test_where_a_run_keeps_weights():
    assert stage_file(RUN, 2) == RUN / "stage-2/weights.safetensors"
    assert best_file(RUN) == RUN / "best/weights.safetensors"


def test_a_stage_trains_on_the_groups_of_its_splits_that_have_both_sides():
    corpus = corpus_of_groups((0, 1, 2, 3), ("train", "train", "restval", "val"))
    corpus = corpus.take(np.arange(4), np.array([1, 2, 3]))  # group 0 has no text
    assert training_corpus(Stage(objective=Hinge()), corpus).image_groups.tolist() == [1]
    both = Stage(objective=Hinge(), splits=("train", "restval"))
    assert training_corpus(both, corpus).text_groups.tolist() == [1, 2]
