"""Training end to end on a few small scenes: resume, interruption, kill, refusals."""

import json
import os
import resource
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.corpus import Features
from diptych.errors import DataError, RecipeError, RunError
from diptych.model import Model
from diptych.training.engine.checkpoint import Snapshot, snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback, press_ctrl_c
from support.corpora import with_features
from support.pictures import BrokenPicture
from support.runs import assert_same_run, journal

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "stage.1.batches.size=16"]
TINY = [*SMALL, "model.image.width=2", "model.image.pixels=32", "stage.2.batches.size=16", "stage.2.epochs=2"]


def test_a_run_holds_what_is_promised(whole):
    names = {str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()}
    assert names == {
        "recipe.toml",
        "vocabulary.json",
        "data.json",
        "metrics.jsonl",
        "best/weights.safetensors",
        "best/metrics.json",
        "last/snapshot.safetensors",
        "stage-1/weights.safetensors",
        ".lock",
    }
    lines = journal(whole)
    assert [(line["stage"], line["epoch"]) for line in lines] == [(1, 1), (2, 1), (2, 2)]
    best = max(lines, key=lambda line: line["val"]["rsum"])
    assert json.loads((whole / "best" / "metrics.json").read_text())["val"] == best["val"]


@pytest.mark.parametrize("at", [(1,), (3, 4), (2, 6, 9)])
def test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(at, whole, corpus, recipe, tmp_path):
    callback = RecordingCallback(at)
    for turn in range(len(at)):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, corpus, tmp_path, resume=turn > 0, device="cpu", workers=turn % 3, callback=callback)
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=2, callback=callback)
    assert callback.steps == 3 * 3  # every step was trained once, none twice
    assert_same_run(whole, tmp_path)


def test_resuming_a_finished_run_changes_nothing(whole, corpus, recipe, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    callback = RecordingCallback()
    train(recipe, corpus, copy, resume=True, device="cpu", callback=callback)
    assert callback.steps == 0
    assert_same_run(whole, copy)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("at", [3, 6])  # the snapshots after the first epoch of each stage
def test_kill_9_during_a_save_leaves_a_loadable_checkpoint(at, whole, corpus, recipe, tmp_path, kill_in_a_save):
    kill_in_a_save(at, lambda: train(recipe, corpus, tmp_path, device="cpu", workers=0))
    assert list(tmp_path.rglob(".*.tmp")), "the kill did not hit in the middle of a save: this test would prove nothing"
    Model.load(tmp_path, "cpu")
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0)
    assert_same_run(whole, tmp_path)
    assert not list(tmp_path.rglob(".*.tmp"))


def test_a_timed_snapshot_is_one_to_go_on_from(whole, corpus, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("diptych.training.engine.loop.SECONDS_BETWEEN_SNAPSHOTS", 0.0)

    def power_cut():
        raise OSError("power cut")

    with pytest.raises(OSError, match="power cut"):
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callback=RecordingCallback((5,), power_cut))
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0)
    assert_same_run(whole, tmp_path)


def test_a_frozen_part_does_not_move_in_training(corpus, tmp_path):
    run = train(load_recipe("scenes", [*TINY, "stage.2.trainable=['text']"]), corpus, tmp_path, device="cpu")
    before, after = load_file(run / "stage-1" / "weights.safetensors"), load_file(snapshot_path(run))
    frozen = [name for name in before if name.startswith("image.")]
    assert any(name.endswith("running_mean") for name in frozen)
    assert all(torch.equal(before[name], after[f"model.{name}"]) for name in frozen)
    assert not torch.equal(before["text.words.weight"], after["model.text.words.weight"])


def test_training_learns(corpus, tmp_path):
    recipe = load_recipe("vse0", [*SMALL, "stage.1.epochs=20", "stage.1.optimiser.rate=0.02", "text.threshold=1"])
    lines = journal(train(recipe, with_features(corpus), tmp_path, device="cpu"))
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]


def test_the_journal_tells_a_loss_a_pair_whether_an_objective_sums_or_averages(corpus, tmp_path):
    contrastive = "stage.1.objective={name='contrastive', temperature=1.0}"
    changes = [*SMALL, contrastive, "stage.1.epochs=1", "stage.1.optimiser.rate=1e-9"]
    [line] = journal(train(load_recipe("vsepp", changes), with_features(corpus), tmp_path, device="cpu"))
    # Two directions among at most 16 texts, cosines from -1 to 1.
    assert 2 * np.log(2) - 4 < line["loss"] < 2 * np.log(16) + 4
    assert line["loss"] > 2  # a sixteenth of it, if divided twice, is not


def test_patience_stops_early_and_the_schedule_lowers_the_rate(corpus, tmp_path):
    changes = ["stage.1.epochs=30", "stage.1.patience=2", "stage.1.schedule.every=2", "stage.1.optimiser.rate=1e-12"]
    callback = RecordingCallback()
    lines = journal(train(load_recipe("vsepp", [*SMALL, *changes]), with_features(corpus), tmp_path, callback=callback))
    assert len(lines) == 3  # the first is the best, two more without a better one
    assert [line["rate"] for line in lines] == pytest.approx([1e-12, 1e-12, 1e-13])
    assert any("stopped early" in line for line in callback.messages)


def test_a_collapsed_run_is_named_with_the_way_out(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("diptych.training.engine.collapse.MIN_STEPS", 4)
    same = with_features(corpus)
    same = replace(same, features=Features([np.ones((len(same.image_ids), 4), np.float32)]))
    same = replace(same, texts=["word"] * len(same.texts))
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=3", "text.threshold=1"])
    callback = RecordingCallback()
    lines = journal(train(recipe, same, tmp_path, callback=callback))
    (event,) = [line for line in lines if line["event"] == "collapsed"]
    assert "2 x margin" in event["message"]
    assert "negatives = 'sum'" in event["message"]
    assert any("collapsed" in line for line in callback.messages)


def test_a_healthy_run_is_not_called_collapsed(whole):
    assert all(line["event"] == "epoch" for line in journal(whole))


def test_unreadable_images_are_named_once_and_training_goes_on(corpus, recipe, tmp_path):
    pictures = list(corpus.pictures)
    pictures[3] = BrokenPicture()
    lines = journal(train(recipe, replace(corpus, pictures=pictures), tmp_path, device="cpu"))
    skipped = [line for line in lines if line["event"] == "skipped"]
    assert {line["image"] for line in skipped} == {corpus.image_ids[3]}
    assert len(skipped) == 2  # once a stage
    assert skipped[0]["message"] == "broken.jpg: truncated"


def test_the_vocabulary_counts_train_only(corpus, recipe, whole, tmp_path):
    texts = [
        "zebra zebra zebra zebra zebra" if split != "train" else text
        for text, split in zip(corpus.texts, corpus.text_splits, strict=True)
    ]
    run = train(
        load_recipe("scenes", [*TINY, "stage.2.epochs=1"]), replace(corpus, texts=texts), tmp_path, device="cpu"
    )
    assert "zebra" not in (run / "vocabulary.json").read_text()


def test_word_vectors_are_a_start(corpus, tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("red " + " ".join(["0.5"] * 8) + "\n")
    callback = RecordingCallback()
    changes = [f"text.vectors={vectors}", "stage.1.epochs=1", "text.threshold=1", "stage.1.optimiser.rate=1e-9"]
    run = train(load_recipe("vsepp", [*SMALL, *changes]), with_features(corpus), tmp_path / "run", callback=callback)
    trained = Model.load(run, "cpu")
    word = trained.matcher.text.words.weight[trained.vocabulary.ids["red"]]
    torch.testing.assert_close(word.detach(), torch.full((8,), 0.5), atol=1e-5, rtol=0)
    assert any(line.startswith("word vectors: 1 of") for line in callback.messages)


def test_only_the_named_parts_are_trained(corpus, tmp_path):
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=1", 'stage.1.trainable=["project"]'])
    tensors = load_file(snapshot_path(train(recipe, with_features(corpus), tmp_path)))
    moved = {name.split(".")[1] for name in tensors if name.startswith("optimiser.")}
    assert moved == {"project"}
    recipe = load_recipe("vsepp", [*SMALL, 'stage.1.trainable=["projct"]'])
    with pytest.raises(RecipeError, match="no part 'projct'; did you mean 'project'"):
        train(recipe, with_features(corpus), tmp_path / "wrong")


def test_a_full_disk_is_one_line_and_keeps_the_snapshot_before(corpus, recipe, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callback=RecordingCallback((4,)))
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
    encode = Model.encode_corpus

    def interrupted_encode(self, *arguments, **named):
        press_ctrl_c()
        return encode(self, *arguments, **named)

    callback = RecordingCallback()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Model, "encode_corpus", interrupted_encode)
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callback=callback)
    assert callback.steps == 3  # stage 2 has not begun
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0, callback=callback)
    assert callback.steps == 9
    assert_same_run(whole, tmp_path)


def test_a_stage_that_goes_on_has_the_best_before_to_beat(corpus, tmp_path):
    changes = ["stage.1.epochs=3", "stage.1.optimiser.rate=0.01", "stage.2.objective.negatives=sum"]
    changes += ["stage.2.optimiser.rate=5"]  # ruins everything
    run = train(load_recipe("scenes", [*TINY, *changes]), corpus, tmp_path, device="cpu")
    lines = journal(run)
    assert [line["best"] for line in lines if line["stage"] == 2] == [False, False]
    best = load_file(run / "best" / "weights.safetensors")
    assert all(torch.equal(value, best[name]) for name, value in load_file(run / "stage-1/weights.safetensors").items())


def test_stages_that_have_not_begun_may_change_before_a_resume(corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(load_recipe("scenes", TINY), corpus, tmp_path, device="cpu", callback=RecordingCallback((2,)))
    changed = load_recipe("scenes", [*TINY, "stage.2.epochs=1"])
    train(changed, corpus, tmp_path, resume=True, device="cpu")
    assert load_recipe(str(tmp_path / "recipe.toml")) == changed
    assert [line["stage"] for line in journal(tmp_path)] == [1, 2]


def test_a_stage_can_start_from_another_run(whole, corpus, tmp_path):
    changes = [*TINY, f"stage.1.start={whole}", "stage.1.optimiser.rate=1e-12", "stage.2.epochs=1"]
    run = train(load_recipe("scenes", changes), corpus, tmp_path / "run", device="cpu")
    base = load_file(whole / "best" / "weights.safetensors")
    started = load_file(run / "stage-1" / "weights.safetensors")
    for name in ("project.weight", "text.words.weight"):
        torch.testing.assert_close(started[name], base[name], atol=1e-6, rtol=0)
    with pytest.raises(RunError, match="its model has joint = 16, recipe and data ask for 8"):
        train(load_recipe("scenes", [*changes, "model.joint=8", "model.text.hidden=8"]), corpus, tmp_path / "other")


def test_two_at_once_are_refused(whole, corpus, recipe, tmp_path):
    def second():
        with pytest.raises(RunError, match=f"process {os.getpid()} is writing to it"):
            train(recipe, corpus, tmp_path, resume=True, device="cpu")

    train(recipe, corpus, tmp_path, device="cpu", workers=0, callback=RecordingCallback((2,), second))
    assert_same_run(whole, tmp_path)


def test_a_diverged_training_says_where_and_what_to_do(corpus, tmp_path):
    recipe = load_recipe("vse0", [*SMALL, "stage.1.epochs=3", "stage.1.optimiser.rate=1e38"])
    with pytest.raises(
        RunError, match=r"stage 1, epoch 1, step \d: the loss is (nan|inf); lower optimiser\.rate, which is 1e\+38"
    ):
        train(recipe, with_features(corpus), tmp_path)


def test_a_recipe_and_a_corpus_by_name(tmp_path):
    with pytest.raises(DataError, match=r"the val split is empty, and stage\.1\.select"):
        train("scenes", "scenes:train=4,val=0,test=4", tmp_path)


def test_other_features_are_other_data(corpus, tmp_path):
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=1"])
    train(recipe, with_features(corpus), tmp_path)
    other = with_features(corpus)
    other = replace(other, features=Features([other.features[np.arange(len(other.image_ids))] + 1]))
    with pytest.raises(RunError, match="made with other data"):
        train(recipe, other, tmp_path, resume=True)


def test_unreadable_images_and_an_interruption_leave_the_same_journal(corpus, recipe, tmp_path):
    pictures = list(corpus.pictures)
    pictures[3] = pictures[7] = BrokenPicture()
    broken = replace(corpus, pictures=pictures)
    train(recipe, broken, tmp_path / "whole", device="cpu", workers=2)
    for turn, at in enumerate((1, 4, 2)):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, broken, tmp_path / "cut", resume=turn > 0, device="cpu", callback=RecordingCallback((at,)))
    train(recipe, broken, tmp_path / "cut", resume=True, device="cpu", workers=0)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_second_ctrl_c_stops_at_once(corpus, recipe, tmp_path):
    def twice():
        press_ctrl_c()
        time.sleep(0.01)
        press_ctrl_c()
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callback=RecordingCallback((2,), twice))
    assert Snapshot.read(tmp_path).position.step == 0  # only the one that every run begins with
