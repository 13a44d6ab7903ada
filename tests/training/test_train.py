"""Training end to end on a few small scenes: resume, interruption, kill, refusals."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from diptych.data.corpus import Corpus, Features
from diptych.data.formats.scenes import make_scenes
from diptych.errors import DataError, RecipeError, RunError
from diptych.evaluation.runs import evaluate
from diptych.model import Model
from diptych.report.run_evaluator import RunEvaluator
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.recipes import SMALL, TINY
from support.runs import assert_same_run, journal


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
            train(recipe, corpus, tmp_path, resume=turn > 0, device="cpu", workers=turn % 3, callbacks=[callback])
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=2, callbacks=[callback])
    assert callback.steps == 3 * 3  # every step was trained once, none twice
    assert_same_run(whole, tmp_path)


def test_resuming_a_finished_run_changes_nothing(whole, corpus, recipe, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    callback = RecordingCallback()
    train(recipe, corpus, copy, resume=True, device="cpu", callbacks=[callback])
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


def test_only_the_named_parts_are_trained(corpus, tmp_path):
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=1", 'stage.1.trainable=["project"]'])
    tensors = load_file(snapshot_path(train(recipe, with_features(corpus), tmp_path)))
    moved = {name.split(".")[1] for name in tensors if name.startswith("optimiser.")}
    assert moved == {"project"}
    recipe = load_recipe("vsepp", [*SMALL, 'stage.1.trainable=["projct"]'])
    with pytest.raises(RecipeError, match="no part 'projct'; did you mean 'project'"):
        train(recipe, with_features(corpus), tmp_path / "wrong")


def test_a_stage_that_continues_must_beat_the_previous_best(corpus, tmp_path):
    changes = ["stage.1.epochs=3", "stage.1.optimiser.rate=0.01", "stage.2.objective.negatives=sum"]
    changes += ["stage.2.optimiser.rate=5"]  # ruins everything
    run = train(load_recipe("scenes", [*TINY, *changes]), corpus, tmp_path, device="cpu")
    lines = journal(run)
    assert [line["best"] for line in lines if line["stage"] == 2] == [False, False]
    best = load_file(run / "best" / "weights.safetensors")
    assert all(torch.equal(value, best[name]) for name, value in load_file(run / "stage-1/weights.safetensors").items())


def test_stages_that_have_not_begun_may_change_before_a_resume(corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(load_recipe("scenes", TINY), corpus, tmp_path, device="cpu", callbacks=[RecordingCallback((2,))])
    changed = load_recipe("scenes", [*TINY, "stage.2.epochs=1"])
    train(changed, corpus, tmp_path, resume=True, device="cpu")
    assert load_recipe(str(tmp_path / "recipe.toml")) == changed
    assert [line["stage"] for line in journal(tmp_path)] == [1, 2]


def test_two_at_once_are_refused(whole, corpus, recipe, tmp_path):
    def second():
        with pytest.raises(RunError, match=f"process {os.getpid()} is writing to it"):
            train(recipe, corpus, tmp_path, resume=True, device="cpu")

    train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[RecordingCallback((2,), second)])
    assert_same_run(whole, tmp_path)


def test_a_recipe_and_a_corpus_by_name(tmp_path):
    with pytest.raises(DataError, match=r"the val split is empty, and stage\.1\.select"):
        train("scenes", "scenes:train=4,val=0,test=4", tmp_path)


def test_pictures_in_memory_train_as_their_files_do(corpus, recipe, tmp_path, monkeypatch):
    images = {name: picture.load() for name, picture in zip(corpus.image_ids, corpus.pictures, strict=True)}
    for name, image in images.items():
        image.save(tmp_path / f"{name}.png")
    names = list(images) * 2
    texts = [f"picture {number}, seen {turn}" for turn in range(2) for number in range(len(images))]
    monkeypatch.chdir(tmp_path)
    files = Corpus.from_pairs([f"{name}.png" for name in names], texts).with_splits(val=0.2, test=0.2)
    memory = Corpus.from_pairs([images[name] for name in names], texts, ids=[f"{name}.png" for name in names])
    memory = memory.with_splits(val=0.2, test=0.2)
    assert memory.digest() == files.digest()
    first, second = (
        train(recipe, data, tmp_path / kind, device="cpu", workers=2) for kind, data in (("f", files), ("m", memory))
    )
    assert_same_run(first, second)
    train(recipe, memory, first, resume=True, device="cpu")  # the same data, wherever its pixels are
    (tmp_path / "t.csv").write_text(
        "image,text\n" + "".join(f'{name}.png,"{text}"\n' for name, text in zip(names, texts, strict=True))
    )
    train(recipe, tmp_path / "t.csv", first, resume=True, device="cpu")  # split as the run was
    result = evaluate(second, memory, device="cpu")
    assert result.images == memory.split_sizes()["test"] == 7
    RunEvaluator(memory).write_report(second, Model.load(second, "cpu"))
    assert "data:image/" in (second / "report.html").read_text()


def test_data_that_nobody_split_names_the_remedy(recipe, tmp_path):
    images = [Image.new("RGB", (8, 8), (number, 0, 0)) for number in range(3)]
    corpus = Corpus.from_pairs(images, ["a", "b", "c"])
    assert corpus.split_sizes() == {"train": 3}
    with pytest.raises(DataError, match=r"the val split is empty.*split it with --val 0\.15 --test 0\.15 \(in Python"):
        train(recipe, corpus, tmp_path)


def test_other_features_are_other_data(corpus, tmp_path):
    recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=1"])
    train(recipe, with_features(corpus), tmp_path)
    other = with_features(corpus)
    other = replace(other, features=Features([other.features[np.arange(len(other.image_ids))] + 1]))
    with pytest.raises(RunError, match="made with other data"):
        train(recipe, other, tmp_path, resume=True)


def test_refusals(whole, corpus, recipe, tmp_path):
    with pytest.raises(RunError, match="already holds a run; go on with --resume"):
        train(recipe, corpus, whole)
    with pytest.raises(RunError, match="no run to resume"):
        train(recipe, corpus, tmp_path / "none", resume=True)
    with pytest.raises(RunError, match=r"another recipe .*; resume with those, or with this file as the recipe"):
        train(load_recipe("scenes", [*TINY, "seed=5"]), corpus, whole, resume=True)
    with pytest.raises(RunError, match="made with other data"):
        train(recipe, make_scenes(train=24, val=6, test=6, texts=2, seed=9), whole, resume=True)
    with pytest.raises(RecipeError, match=r"stage\.1\.select = 'rsun'.*did you mean 'rsum'"):
        train(load_recipe("scenes", [*TINY, "stage.1.select=rsun"]), corpus, tmp_path / "select")
    with pytest.raises(RecipeError, match="this is the first stage"):
        train(load_recipe("scenes", [*TINY, "stage.1.start=previous"]), corpus, tmp_path / "start")
    with pytest.raises(DataError, match="the val split is empty"):
        train(recipe, corpus.split("train", "test"), tmp_path / "val")
    with pytest.raises(DataError, match="reads stored features"):
        train(load_recipe("vsepp", [*SMALL, "model.image={name='features'}"]), corpus, tmp_path / "features")
    assert not (tmp_path / "select").exists()
    assert not (tmp_path / "val").exists()


def test_what_cannot_be_resumed_is_left_as_it_is(whole, corpus, recipe, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "last")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="last/ is missing"):
        train(recipe, corpus, run, resume=True)
    (run / "recipe.toml").unlink()
    with pytest.raises(RunError, match="holds best of another run"):
        train(recipe, corpus, run)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert Model.load(run, "cpu").matcher is not None
