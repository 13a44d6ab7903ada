"""The training loop on a few small scenes: snapshots, early stopping, reports and Ctrl-C."""

import json
import resource
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.data.corpus import Features
from diptych.errors import RunError
from diptych.evaluation.runs import validation_metrics
from diptych.model import Model
from diptych.models.engines.torch_engine import TorchEngine
from diptych.objectives.hinge import Hinge
from diptych.training.engine.checkpoint import Snapshot, snapshot_path
from diptych.training.engine.journal import Journal
from diptych.training.inputs.validation import RetrievalOnVal
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback, press_ctrl_c
from support.corpora import with_features
from support.pictures import BrokenPicture
from support.recipes import BASE, MODEL, SMALL
from support.runs import assert_same_run, journal, load_weights


def test_a_run_resumes_from_a_timed_snapshot(whole, corpus, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("diptych.training.engine.loop.SECONDS_BETWEEN_SNAPSHOTS", 0.0)

    class PowerCut(BaseException):
        """Nothing of Diptych catches it, as nothing runs after a power cut."""

    def power_cut():
        raise PowerCut

    with pytest.raises(PowerCut):
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[RecordingCallback((5,), power_cut)])
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0)
    assert_same_run(whole, tmp_path)


def test_the_journal_holds_the_loss_per_pair_whether_an_objective_sums_or_averages(corpus, tmp_path):
    contrastive = "stage.1.objective={name='contrastive', temperature=1.0}"
    changes = [*SMALL, contrastive, "stage.1.epochs=1", "stage.1.optimiser.rate=1e-9"]
    [line] = journal(train(load_recipe("vsepp", changes), with_features(corpus), tmp_path, device="cpu"))
    # Two directions among at most 16 texts, cosines from -1 to 1.
    assert 2 * np.log(2) - 4 < line["loss"] < 2 * np.log(16) + 4
    assert line["loss"] > 2  # a sixteenth of it, if divided twice, is not


def test_patience_stops_early_and_the_schedule_lowers_the_rate(corpus, tmp_path):
    changes = ["stage.1.epochs=30", "stage.1.patience=2", "stage.1.schedule.every=2", "stage.1.optimiser.rate=1e-12"]
    callback = RecordingCallback()
    lines = journal(
        train(load_recipe("vsepp", [*SMALL, *changes]), with_features(corpus), tmp_path, callbacks=[callback])
    )
    assert len(lines) == 3  # the first is the best, two more without a better one
    assert [line["rate"] for line in lines] == pytest.approx([1e-12, 1e-12, 1e-13])
    assert any("stopped early" in line for line in callback.messages)


def test_a_collapse_is_reported_with_a_remedy(corpus, tmp_path):
    same = with_features(corpus)
    same = replace(same, features=Features([np.ones((len(same.image_ids), 4), np.float32)]))
    same = replace(same, texts=["word"] * len(same.texts))
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=3", "text.threshold=1"])
    callback = RecordingCallback()
    lines = journal(train(recipe, same, tmp_path, callbacks=[callback]))
    (event,) = [line for line in lines if line["event"] in ("plateau", "collapsed")]
    assert event["event"] == "collapsed"
    assert event["message"].startswith("collapsed for 3 steps now, all scores are equal: ")
    assert "2 x margin" in event["message"]
    assert "negatives = 'sum'" in event["message"]
    assert any("collapsed" in line for line in callback.messages)


def test_a_healthy_run_is_not_called_collapsed(whole):
    assert all(line["event"] == "epoch" for line in journal(whole))


@pytest.mark.parametrize("recall", ["rising", "at chance"])
def test_what_is_said_of_a_plateau_depends_on_recall(recall, corpus, tmp_path, monkeypatch):
    """Every step looks collapsed to the objective; only recall tells whether that matters."""
    monkeypatch.setattr(Hinge, "has_collapsed", lambda *_: True)
    measured = iter([200.0, 210.0, 220.0] if recall == "rising" else [100.0] * 3)
    names = ("rsum", "i2t_r1", "t2i_r1")
    monkeypatch.setattr(RetrievalOnVal, "measure", lambda *_: dict.fromkeys(names, next(measured)))
    monkeypatch.setattr(RetrievalOnVal, "chance", {"rsum": 110.0})
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=3"])
    lines = journal(train(recipe, with_features(corpus), tmp_path, device="cpu"))
    events = [(line["event"], line["epoch"]) for line in lines if line["event"] != "epoch"]
    assert events == ([] if recall == "rising" else [("plateau", 1)])


def test_unreadable_images_are_named_once_and_training_goes_on(corpus, recipe, tmp_path):
    pictures = list(corpus.pictures)
    pictures[3] = BrokenPicture()
    lines = journal(train(recipe, replace(corpus, pictures=pictures), tmp_path, device="cpu"))
    skipped = [line for line in lines if line["event"] == "skipped"]
    assert {line["image"] for line in skipped} == {corpus.image_ids[3]}
    assert len(skipped) == 2  # once a stage
    assert skipped[0]["message"] == "broken.jpg: truncated"


def test_a_full_disk_is_reported_in_one_line_and_keeps_the_previous_snapshot(corpus, recipe, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[RecordingCallback((4,))])
    before = snapshot_path(tmp_path).read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limit[1]))  # as a disk that is full half-way
    try:
        with pytest.raises(RunError, match=r"cannot be written .*free space"):
            train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert snapshot_path(tmp_path).read_bytes() == before
    assert not list(tmp_path.rglob(".*.tmp"))
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0)


def test_ctrl_c_during_a_validation_stops_there_and_resumes_alike(whole, corpus, recipe, tmp_path, monkeypatch):
    encode = TorchEngine.encode_corpus

    def interrupted_encode(self, *arguments, **named):
        press_ctrl_c()
        return encode(self, *arguments, **named)

    callback = RecordingCallback()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TorchEngine, "encode_corpus", interrupted_encode)
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[callback])
    assert callback.steps == 3  # stage 2 has not begun
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0, callbacks=[callback])
    assert callback.steps == 9
    assert_same_run(whole, tmp_path)


def test_a_diverged_training_says_where_and_what_to_do(corpus, tmp_path):
    recipe = load_recipe("vse0", [*SMALL, "stage.1.epochs=3", "stage.1.optimiser.rate=1e38"])
    with pytest.raises(
        RunError, match=r"stage 1, epoch 1, step \d: the loss is (nan|inf); lower optimiser\.rate, which is 1e\+38"
    ):
        train(recipe, with_features(corpus), tmp_path)


def test_unreadable_images_and_an_interruption_leave_the_same_journal(corpus, recipe, tmp_path):
    pictures = list(corpus.pictures)
    pictures[3] = pictures[7] = BrokenPicture()
    broken = replace(corpus, pictures=pictures)
    train(recipe, broken, tmp_path / "whole", device="cpu", workers=2)
    for turn, at in enumerate((1, 4, 2)):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, broken, tmp_path / "cut", resume=turn > 0, device="cpu", callbacks=[RecordingCallback((at,))])
    train(recipe, broken, tmp_path / "cut", resume=True, device="cpu", workers=0)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_second_ctrl_c_stops_at_once(corpus, recipe, tmp_path):
    def twice():
        press_ctrl_c()
        time.sleep(0.01)
        press_ctrl_c()
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[RecordingCallback((2,), twice)])
    assert Snapshot.read(tmp_path).position.step == 0  # only the one that every run begins with


@pytest.fixture(scope="module")
def from_base(base, recipes):
    """Loads a recipe that starts from a run and measures that start."""

    def load(*changes):
        return recipes(MODEL + BASE, f"stage.1.start={base}", "stage.1.include_start=true", *changes)

    return load


def test_the_start_is_measured_before_the_first_step(base, from_base, corpus, tmp_path):
    callback = RecordingCallback()
    run = train(from_base(), corpus, tmp_path, device="cpu", workers=0, callbacks=[callback])
    start, *trained = journal(run)
    assert (start["stage"], start["epoch"], start["step"], start["event"], start["best"]) == (1, 0, 0, "epoch", True)
    assert "loss" not in start
    assert [line["epoch"] for line in trained] == [1, 2]
    assert start["val"] == validation_metrics(Model.load(base, "cpu").encode_corpus(corpus.split("val")))
    assert callback.stages == [(1, 1, 2 * 3, 0)]


def test_the_start_stays_the_best_if_no_epoch_beats_it(base, from_base, corpus, tmp_path):
    callback = RecordingCallback()
    recipe = from_base("stage.1.optimiser.rate=1e-12", "stage.1.epochs=9", "stage.1.patience=2")
    run = train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[callback])
    assert [line["best"] for line in journal(run)] == [True, False, False]
    assert json.loads((run / "best" / "metrics.json").read_text())["epoch"] == 0
    assert callback.messages_with("no better rsum on val for 2 epochs")
    assert callback.messages_with("no epoch had a better rsum on val than the start")
    for name, value in load_weights(base).items():
        assert torch.equal(load_weights(run)[name], value), name
    without = train(from_base("stage.1.include_start=false", "stage.1.epochs=1"), corpus, tmp_path / "without")
    assert json.loads((without / "best" / "metrics.json").read_text())["epoch"] == 1


def test_a_start_from_scratch_is_not_measured(corpus, tmp_path):
    changes = [*SMALL, "stage.1.include_start=true", "stage.1.epochs=1"]
    run = train(load_recipe("vsepp", changes), with_features(corpus), tmp_path, device="cpu")
    assert [line["epoch"] for line in journal(run)] == [1]


@pytest.mark.parametrize("at", ["while it is measured", "after its line", "in the first epoch"])
def test_a_run_that_measures_its_start_resumes_alike(at, from_base, corpus, tmp_path, monkeypatch):
    whole = train(from_base(), corpus, tmp_path / "whole", device="cpu", workers=0)
    encode, add, again = TorchEngine.encode_corpus, Journal.add, tmp_path / "again"

    def interrupted_encode(self, *arguments, **named):
        press_ctrl_c()
        return encode(self, *arguments, **named)

    def interrupted_add(self, line):
        add(self, line)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if at == "while it is measured":
            patch.setattr(TorchEngine, "encode_corpus", interrupted_encode)
        elif at == "after its line":
            patch.setattr(Journal, "add", interrupted_add)
        callback = RecordingCallback((1,) if at == "in the first epoch" else ())
        train(from_base(), corpus, again, device="cpu", workers=0, callbacks=[callback])
    assert (Snapshot.read(again).position.epoch == 0) == (at != "in the first epoch")
    train(from_base(), corpus, again, resume=True, device="cpu", workers=0)
    assert_same_run(whole, again)


def test_a_later_stage_can_measure_what_it_starts_from(recipes, corpus, tmp_path):
    """With another objective the previous best does not count, but the start itself may."""
    second = BASE.partition("[[stage]]")[2].replace('"sum"', '"max"')
    recipe = recipes(f'{MODEL}{BASE}[[stage]]\nstart = "previous"\ninclude_start = true\n{second}')
    run = train(recipe, corpus, tmp_path, device="cpu", workers=0)
    lines = journal(run)
    assert [(line["stage"], line["epoch"]) for line in lines] == [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    best = max((line for line in lines if line["stage"] == 1), key=lambda line: line["val"]["rsum"])
    assert lines[2]["val"] == best["val"]
    assert lines[2]["best"]
