"""Both stages: the classifier that goes from one to the next, what the journal tells, and a head behind them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.corpus import Features
from diptych.errors import RecipeError, RunError
from diptych.model import Model
from diptych.models.towers.text import cnn
from diptych.objectives.instance import Instance
from diptych.training.engine.checkpoint import Snapshot, snapshot_path

GROUPS = 14
STEPS = 4  # an epoch: 28 pairs in batches of 8


def test_both_stages_train_and_the_classifier_is_kept_beside_the_weights(both, epochs_of, classifier):
    run, watcher = both
    lines = epochs_of(run)
    assert [line["stage"] for line in lines] == [1, 1, 2, 2]
    assert [sorted(line["terms"]) for line in lines] == [["textual", "visual"]] * 2 + [
        ["image_to_text", "text_to_image", "textual", "visual"]
    ] * 2
    for folder in ("stage-1", "best"):
        kept = classifier(run, folder)
        assert kept["classifier"].shape == (GROUPS, 6)
        assert kept["labels"].tolist() == list(range(GROUPS))
        weights = load_file(run / folder / "weights.safetensors")
        assert {name.split(".")[0] for name in weights} == {"image", "image_head", "text", "text_head"}
    assert not torch.equal(classifier(run)["classifier"], classifier(run, "stage-1")["classifier"])
    assert watcher.of_classes() == [
        "instance: 14 classes; the classifier is fresh",
        f"instance: 14 classes; the classifier is that of {run / 'stage-1'}",
    ]


def test_a_run_is_opened_without_its_classifier(both, corpus, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(both[0], run)
    (run / "best" / "objective.safetensors").unlink()
    opened = Model.load(run, "cpu")
    assert opened.encode_corpus(corpus.split("val")).images.shape == (8, 6)


def test_the_second_stage_goes_on_with_the_classifier_of_the_first(both, classifier):
    run, watcher = both
    first = watcher.firsts[2]
    kept = classifier(run, "stage-1")
    assert torch.equal(first["objective.classifier"], kept["classifier"])
    assert torch.equal(first["classes.groups"], kept["groups"])
    assert not torch.equal(watcher.firsts[1]["objective.classifier"], kept["classifier"])  # it had learned something
    assert not any(name.startswith("optimiser.") for name in first)


def test_frozen_images_come_from_the_store_and_trained_ones_from_pixels(both):
    run, watcher = both
    first, last = watcher.firsts[1], load_file(snapshot_path(run))
    name = "model.image.backbone.scale"
    assert torch.equal(first[name], watcher.firsts[2][name])
    assert not torch.equal(first[name], last[name])


@pytest.mark.parametrize("size", [7, 8], ids=["even", "uneven"])
def test_the_journal_tells_the_shares_that_were_classified_wrongly(
    size, one_stage, trained, tmp_path, monkeypatch, epochs_of
):
    seen = []

    def watched(self, batch):
        loss = call(self, batch)
        seen.append((len(batch.scores), loss.error_rates))
        return loss

    call = Instance.__call__
    monkeypatch.setattr(Instance, "__call__", watched)
    run, _ = trained(one_stage("stage.1.epochs=1", f"stage.1.batches.size={size}"), tmp_path / "run")
    (line,) = epochs_of(run)
    for side in ("visual", "textual"):
        wrong = sum(pairs * float(errors[side]) for pairs, errors in seen)
        assert line["class_error"][side] == pytest.approx(100 * wrong / sum(pairs for pairs, _ in seen))
        assert 0 < line["class_error"][side] <= 100
    assert line["class_error"].keys() == {"visual", "textual"}


def test_only_what_classifies_tells_of_errors(one_stage, trained, tmp_path, epochs_of):
    run, watcher = trained(
        one_stage("stage.1.epochs=1", "stage.1.objective={name='instance', rank=1.0, visual=0, textual=0}"),
        tmp_path / "run",
    )
    (line,) = epochs_of(run)
    assert "class_error" not in line
    assert not (run / "best" / "objective.safetensors").exists()
    assert watcher.of_classes() == []


def test_ranking_after_instance_loss_leaves_no_old_classifier_in_best(two_stages, trained, tmp_path):
    run, _ = trained(two_stages("stage.2.objective={name='hinge', negatives='sum'}"), tmp_path / "run")
    assert (run / "stage-1" / "objective.safetensors").exists()
    assert not (run / "best" / "objective.safetensors").exists()


def test_the_loss_of_the_classifier_falls(one_stage, trained, tmp_path, epochs_of):
    changes = ["stage.1.epochs=20", "stage.1.optimiser.rate=0.5", "model.dropout=0", "stage.1.batches.size=14"]
    run, _ = trained(one_stage(*changes), tmp_path / "run")
    losses = [line["terms"]["textual"] for line in epochs_of(run)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("second", [None, 9, 11], ids=["all", "as many", "more"])
def test_a_sampled_classifier_goes_on_whole(second, two_stages, trained, tmp_path, classifier):
    changes = ["stage.1.objective.sampled=9", "stage.2.optimiser.rate=1e-12"]
    changes += [] if second is None else [f"stage.2.objective.sampled={second}"]
    run, watcher = trained(two_stages(*changes), tmp_path / "run")
    before, after = classifier(run, "stage-1")["classifier"], classifier(run)["classifier"]
    assert before.shape == after.shape == (GROUPS, 6)
    torch.testing.assert_close(before, after, rtol=0, atol=1e-8)
    assert watcher.of_classes()[1].endswith(str(run / "stage-1"))


def test_as_many_samples_as_classes_are_all_of_them(one_stage, trained, tmp_path):
    one = [one_stage("stage.1.epochs=1", *more) for more in ((), (f"stage.1.objective.sampled={GROUPS}",))]
    runs = [trained(recipe, tmp_path / str(number))[0] for number, recipe in enumerate(one)]
    weights = [(run / "best" / "objective.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1]


def test_a_corpus_with_own_features_needs_no_photos(one_stage, trained, corpus, tmp_path, classifier):
    rows = [np.asarray(picture.load().resize((2, 2))).reshape(-1) / 255 for picture in corpus.pictures]
    own = replace(corpus, pictures=None, features=Features([np.array(rows, np.float32)]))
    run, watcher = trained(one_stage("stage.1.objective.clusters=3"), tmp_path / "run", own)
    assert classifier(run)["classifier"].shape == (3, 6)
    assert Model.load(run, "cpu").encode_corpus(own.split("val")).images.shape == (8, 6)
    assert watcher.said


def test_the_classifier_is_in_the_snapshot_with_its_momentum(both):
    snapshot = Snapshot.read(both[0])
    assert len(snapshot.tensors["classes.groups"]) == GROUPS
    assert snapshot.tensors["optimiser.objective.classifier.momentum_buffer"].abs().max() > 0
    assert snapshot.position.errors == {}  # an epoch has ended


def test_neighbours_go_with_it(one_stage, trained, tmp_path, epochs_of):
    run, _ = trained(one_stage("stage.1.epochs=1", "stage.1.batches.neighbours=true"), tmp_path / "run")
    assert epochs_of(run)[0]["class_error"].keys() == {"visual", "textual"}


def test_the_text_cnn_of_the_second_stage_shifts_too(two_stages, trained, tmp_path, monkeypatch):
    begins = []

    def watched(self, count):
        made = begin(self, count)
        begins.append((self.training, made.tolist()))
        return made

    begin = cnn.TextCNN._begins
    monkeypatch.setattr(cnn.TextCNN, "_begins", watched)
    trained(two_stages("stage.1.epochs=1", "stage.2.epochs=1"), tmp_path / "run")
    steps = [set(places) for training, places in begins if training]
    assert len(steps) == 2 * STEPS
    assert any(len(places) > 1 for places in steps[:STEPS])
    assert any(len(places) > 1 for places in steps[STEPS:])


HEADED = [
    *("stage.2.head={hidden=5, output=4}", "stage.2.trainable=['head_images', 'head_texts']", "stage.2.epochs=1"),
    *("stage.2.optimiser={name='sgd', rate=0.05}", "stage.1.epochs=1"),
]


@pytest.mark.parametrize("crops", [None, "window"], ids=["views of the store", "windows of photos"])
def test_a_head_on_both_views_is_classified_too(crops, two_stages, trained, corpus, tmp_path, classifier, epochs_of):
    recipe = two_stages(*HEADED)
    second = recipe.stage[1].model_copy(update={"crops": crops})
    run, watcher = trained(recipe.model_copy(update={"stage": (recipe.stage[0], second)}), tmp_path / "run")
    assert watcher.of_classes() == ["instance: 14 classes; the classifier is fresh"] * 2  # its vectors are smaller
    assert classifier(run)["classifier"].shape == (GROUPS, 4)
    assert epochs_of(run)[1]["class_error"].keys() == {"visual", "textual"}
    opened = Model.load(run, "cpu")
    assert opened.matcher.reads_views
    assert opened.encode_corpus(corpus.split("val")).images.shape == (8, 4)
    before, after = (load_file(run / folder / "weights.safetensors") for folder in ("stage-1", "best"))
    heads = ("image_head.layers.0.weight", "text_head.layers.0.weight")
    assert all(torch.equal(before[name], after[f"base.{name}"]) for name in heads)


@pytest.mark.parametrize("head", [[], ["stage.1.head={output=4}"]], ids=["alone", "below a head"])
def test_views_are_refused_for_a_model_of_one_vector_an_image(head, one_stage, refused):
    text = "{name='gru', word=4, hidden=6}"
    model = f"model={{name='vse', joint=6, image={{name='views', side=32}}, text={text}}}"
    recipe = one_stage(model, "stage.1.trainable=['all']", *head)
    refused(RecipeError, r"^stage\.1\.model\.image: 'views' gives several vectors per image", recipe)


def test_without_a_damaged_classifier_a_stage_begins_afresh(both, one_stage, trained, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(both[0], base)
    kept = base / "best" / "objective.safetensors"
    kept.write_bytes(kept.read_bytes()[:-3])
    recipe = one_stage(f"stage.1.start={base}", "stage.1.epochs=1")
    with pytest.raises(RunError, match=r"objective\.safetensors: damaged .* delete this file") as caught:
        trained(recipe, tmp_path / "refused")
    assert "\n" not in str(caught.value)
    kept.unlink()
    _, watcher = trained(recipe, tmp_path / "run")
    assert watcher.of_classes() == ["instance: 14 classes; the classifier is fresh"]
