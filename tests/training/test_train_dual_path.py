"""Both stages of the dual-path model: the classifier that passes from one to the next, what is reported, resuming."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from diptych.errors import RunError
from diptych.model import Model
from diptych.models.towers.text import cnn
from diptych.objectives.instance import Instance
from diptych.training.engine.checkpoint import Snapshot, snapshot_path
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.dual_path import GROUPS, STEPS, saved_classifier, small_scenes, with_merged_groups
from support.runs import epoch_lines


def test_both_stages_train_and_the_classifier_is_kept_beside_the_weights(dual_path):
    run, callback = dual_path.trained
    lines = epoch_lines(run)
    assert [line["stage"] for line in lines] == [1, 1, 2, 2]
    assert [sorted(line["terms"]) for line in lines] == [["textual", "visual"]] * 2 + [
        ["image_to_text", "text_to_image", "textual", "visual"]
    ] * 2
    for folder in ("stage-1", "best"):
        kept = saved_classifier(run, folder)
        assert kept["classifier"].shape == (GROUPS, 6)
        assert kept["labels"].tolist() == list(range(GROUPS))
        weights = load_file(run / folder / "weights.safetensors")
        assert {name.split(".")[0] for name in weights} == {"image", "image_head", "text", "text_head"}
    assert not torch.equal(saved_classifier(run)["classifier"], saved_classifier(run, "stage-1")["classifier"])
    assert callback.class_messages == [
        "instance: 14 classes; the classifier is fresh",
        f"instance: 14 classes; the classifier is that of {run / 'stage-1'}",
    ]


def test_a_run_is_opened_without_its_classifier(dual_path, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(dual_path.trained[0], run)
    (run / "best" / "objective.safetensors").unlink()
    opened = Model.load(run, "cpu")
    assert opened.encode_corpus(dual_path.corpus.split("val")).images.shape == (8, 6)


def test_the_second_stage_continues_with_the_classifier_of_the_first(dual_path):
    run, callback = dual_path.trained
    first = callback.first_snapshots[2]
    kept = saved_classifier(run, "stage-1")
    assert torch.equal(first["objective.classifier"], kept["classifier"])
    assert torch.equal(first["classes.groups"], kept["groups"])
    assert not torch.equal(
        callback.first_snapshots[1]["objective.classifier"], kept["classifier"]
    )  # it had learned something
    assert not any(name.startswith("optimiser.") for name in first)


def test_frozen_images_come_from_the_store_and_trained_ones_from_pixels(dual_path):
    run, callback = dual_path.trained
    first, last = callback.first_snapshots[1], load_file(snapshot_path(run))
    name = "model.image.backbone.scale"
    assert torch.equal(first[name], callback.first_snapshots[2][name])
    assert not torch.equal(first[name], last[name])


@pytest.mark.parametrize("size", [7, 8], ids=["even", "uneven"])
def test_the_journal_holds_the_shares_of_misclassified_pairs(dual_path, size, tmp_path, monkeypatch):
    seen, compute = [], Instance.loss

    def spy(self, batch):
        loss = compute(self, batch)
        seen.append((len(batch.scores), loss.error_rates))
        return loss

    monkeypatch.setattr(Instance, "loss", spy)
    recipe = dual_path.one_stage("stage.1.epochs=1", f"stage.1.batches.size={size}")
    stage = recipe.stage[0].model_copy(update={"objective": Instance()})
    run, _ = dual_path.train(recipe.model_copy(update={"stage": (stage,)}), tmp_path / "run")
    (line,) = epoch_lines(run)
    for side in ("visual", "textual"):
        wrong = sum(pairs * float(errors[side]) for pairs, errors in seen)
        assert line["class_error"][side] == pytest.approx(100 * wrong / sum(pairs for pairs, _ in seen))
        assert 0 < line["class_error"][side] <= 100
    assert line["class_error"].keys() == {"visual", "textual"}


def test_only_an_objective_that_classifies_reports_errors(dual_path, tmp_path):
    run, callback = dual_path.train(
        dual_path.one_stage("stage.1.epochs=1", "stage.1.objective={name='instance', rank=1.0, visual=0, textual=0}"),
        tmp_path / "run",
    )
    (line,) = epoch_lines(run)
    assert "class_error" not in line
    assert not (run / "best" / "objective.safetensors").exists()
    assert callback.class_messages == []


def test_ranking_after_instance_loss_leaves_no_old_classifier_in_best(dual_path, tmp_path):
    run, _ = dual_path.train(
        dual_path.two_stages("stage.2.objective={name='hinge', negatives='sum'}"), tmp_path / "run"
    )
    assert (run / "stage-1" / "objective.safetensors").exists()
    assert not (run / "best" / "objective.safetensors").exists()


def test_the_loss_of_the_classifier_falls(dual_path, tmp_path):
    changes = ["stage.1.epochs=30", "stage.1.optimiser.rate=0.5", "model.dropout=0", "stage.1.batches.size=14"]
    run, _ = dual_path.train(dual_path.one_stage(*changes), tmp_path / "run")
    losses = [line["terms"]["textual"] for line in epoch_lines(run)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("second", [None, 9, 11], ids=["all", "as many", "more"])
def test_a_sampled_classifier_goes_on_whole(dual_path, second, tmp_path):
    changes = ["stage.1.objective.sampled=9", "stage.2.optimiser.rate=1e-12"]
    changes += [] if second is None else [f"stage.2.objective.sampled={second}"]
    run, callback = dual_path.train(dual_path.two_stages(*changes), tmp_path / "run")
    before, after = saved_classifier(run, "stage-1")["classifier"], saved_classifier(run)["classifier"]
    assert before.shape == after.shape == (GROUPS, 6)
    torch.testing.assert_close(before, after, rtol=0, atol=1e-8)
    assert callback.class_messages[1].endswith(str(run / "stage-1"))


def test_as_many_samples_as_classes_are_all_of_them(dual_path, tmp_path):
    one = [dual_path.one_stage("stage.1.epochs=1", *more) for more in ((), (f"stage.1.objective.sampled={GROUPS}",))]
    runs = [dual_path.train(recipe, tmp_path / str(number))[0] for number, recipe in enumerate(one)]
    weights = [(run / "best" / "objective.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1]


def test_a_corpus_with_own_features_needs_no_photos(dual_path, tmp_path):
    own = with_features(dual_path.corpus)
    run, callback = dual_path.train(dual_path.one_stage("stage.1.objective.clusters=3"), tmp_path / "run", own)
    assert saved_classifier(run)["classifier"].shape == (3, 6)
    assert Model.load(run, "cpu").encode_corpus(own.split("val")).images.shape == (8, 6)
    assert callback.messages


def test_the_classifier_is_in_the_snapshot_with_its_momentum(dual_path):
    snapshot = Snapshot.read(dual_path.trained[0])
    assert len(snapshot.tensors["classes.groups"]) == GROUPS
    assert snapshot.tensors["optimiser.objective.classifier.momentum_buffer"].abs().max() > 0
    assert snapshot.position.errors == {}  # an epoch has ended


def test_neighbours_go_with_it(dual_path, tmp_path):
    run, _ = dual_path.train(
        dual_path.one_stage("stage.1.epochs=1", "stage.1.batches.neighbours=true"), tmp_path / "run"
    )
    assert epoch_lines(run)[0]["class_error"].keys() == {"visual", "textual"}


def test_the_text_cnn_of_the_second_stage_shifts_too(dual_path, tmp_path, monkeypatch):
    begins = []

    def watched(self, count):
        made = begin(self, count)
        begins.append((self.training, made.tolist()))
        return made

    begin = cnn.TextCNN._begins
    monkeypatch.setattr(cnn.TextCNN, "_begins", watched)
    dual_path.train(dual_path.two_stages("stage.1.epochs=1", "stage.2.epochs=1"), tmp_path / "run")
    steps = [set(places) for training, places in begins if training]
    assert len(steps) == 2 * STEPS
    assert any(len(places) > 1 for places in steps[:STEPS])
    assert any(len(places) > 1 for places in steps[STEPS:])


HEADED = [
    *("stage.2.head={hidden=5, output=4}", "stage.2.trainable=['head_images', 'head_texts']", "stage.2.epochs=1"),
    *("stage.2.optimiser={name='sgd', rate=0.05}", "stage.1.epochs=1"),
]


@pytest.mark.parametrize("crops", [None, "window"], ids=["views of the store", "windows of photos"])
def test_a_head_on_both_views_is_classified_too(dual_path, crops, tmp_path):
    recipe = dual_path.two_stages(*HEADED)
    second = recipe.stage[1].model_copy(update={"crops": crops})
    run, callback = dual_path.train(recipe.model_copy(update={"stage": (recipe.stage[0], second)}), tmp_path / "run")
    assert callback.class_messages == ["instance: 14 classes; the classifier is fresh"] * 2  # its vectors are smaller
    assert saved_classifier(run)["classifier"].shape == (GROUPS, 4)
    assert epoch_lines(run)[1]["class_error"].keys() == {"visual", "textual"}
    opened = Model.load(run, "cpu")
    assert opened.matcher.reads_views
    assert opened.encode_corpus(dual_path.corpus.split("val")).images.shape == (8, 4)
    before, after = (load_file(run / folder / "weights.safetensors") for folder in ("stage-1", "best"))
    heads = ("image_head.layers.0.weight", "text_head.layers.0.weight")
    assert all(torch.equal(before[name], after[f"base.{name}"]) for name in heads)


def test_a_damaged_classifier_is_refused_and_without_it_a_stage_begins_with_a_fresh_one(dual_path, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(dual_path.trained[0], base)
    kept = base / "best" / "objective.safetensors"
    kept.write_bytes(kept.read_bytes()[:-3])
    recipe = dual_path.one_stage(f"stage.1.start={base}", "stage.1.epochs=1")
    with pytest.raises(RunError, match=r"objective\.safetensors: damaged .* delete this file") as caught:
        dual_path.train(recipe, tmp_path / "refused")
    assert "\n" not in str(caught.value)
    kept.unlink()
    _, callback = dual_path.train(recipe, tmp_path / "run")
    assert callback.class_messages == ["instance: 14 classes; the classifier is fresh"]


def test_clusters_are_classes_and_stay_so_in_the_second_stage(dual_path, tmp_path):
    # The second stage trains the backbone, whose features could not be clustered again.
    recipe = dual_path.two_stages(*(f"stage.{number}.objective.clusters=4" for number in (1, 2)))
    run, callback = dual_path.train(recipe, tmp_path / "run")
    first, last = saved_classifier(run, "stage-1"), saved_classifier(run)
    assert first["classifier"].shape == (4, 6)
    assert first["labels"].unique().tolist() == [0, 1, 2, 3]
    assert torch.equal(first["labels"], last["labels"])
    assert [line.split(";")[0] for line in callback.class_messages] == ["instance: 4 classes"] * 2


def test_a_stage_on_other_groups_begins_with_a_fresh_classifier_and_says_so(dual_path, tmp_path):
    recipe = dual_path.one_stage(f"stage.1.start={dual_path.trained[0]}", "stage.1.epochs=1")
    run, callback = dual_path.train(recipe, tmp_path / "other", with_merged_groups(dual_path.corpus))
    assert callback.class_messages == ["instance: 13 classes; the classifier is fresh"]
    assert saved_classifier(run)["classifier"].shape == (13, 6)
    _, callback = dual_path.train(recipe, tmp_path / "same")
    assert callback.class_messages == [
        f"instance: 14 classes; the classifier is that of {dual_path.trained[0] / 'best'}"
    ]
    assert torch.equal(
        callback.first_snapshots[1]["objective.classifier"], saved_classifier(dual_path.trained[0])["classifier"]
    )


def test_other_scenes_with_as_many_groups_begin_with_a_fresh_classifier(dual_path, tmp_path):
    recipe = dual_path.one_stage(f"stage.1.start={dual_path.trained[0]}", "stage.1.epochs=1")
    _, callback = dual_path.train(recipe, tmp_path / "run", small_scenes(seed=5))
    assert callback.class_messages == ["instance: 14 classes; the classifier is fresh"]


def test_features_for_clusters_are_read_once(dual_path, tmp_path):
    small = small_scenes(side=24)
    recipe = dual_path.one_stage("stage.1.epochs=1", "stage.1.objective.clusters=4")
    _, callback = dual_path.train(recipe, tmp_path / "run", small, features=tmp_path / "features")
    train_size, val_size = len(small.split("train").image_ids), len(small.split("val").image_ids)
    ends = [total for what, done, total in callback.preparations if what == "features" and done == total]
    assert ends == [train_size, val_size]
    told = [line.split(" ")[0] for line in callback.messages if "smaller than the crop" in line]
    assert told == [str(train_size), str(val_size)]


KINDS = {
    "dense": [],
    "bias": ["stage.1.objective.bias=true", "stage.2.objective.bias=true"],
    "sampled": ["stage.1.objective.sampled=9", "stage.2.objective.sampled=9"],
    "adam, sampled": [
        *("stage.1.objective.sampled=9", "stage.2.objective.sampled=9", "stage.1.optimiser={rate=0.01}"),
        "stage.2.optimiser={name='adam', rate=0.01}",
    ],
    "clusters": ["stage.1.objective.clusters=4", "stage.2.objective.clusters=4"],
    "public": ["model.heads=public", "model.text.pool=max"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(dual_path, kind, tmp_path):
    recipe = dual_path.two_stages(*KINDS[kind])
    whole, _ = dual_path.train(recipe, tmp_path / "whole")
    callback, stops = RecordingCallback((2, 7, 11)), 3
    for turn in range(stops):
        with pytest.raises(KeyboardInterrupt):
            dual_path.train(recipe, tmp_path / "cut", resume=turn > 0, workers=2, callback=callback)
    dual_path.train(recipe, tmp_path / "cut", resume=True, workers=2, callback=callback)
    assert callback.steps == 2 * 2 * STEPS
    files = [
        *("best/weights.safetensors", "best/objective.safetensors", "last/snapshot.safetensors"),
        *("stage-1/weights.safetensors", "stage-1/objective.safetensors"),
    ]
    for name in files:
        assert (whole / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name
    assert epoch_lines(whole) == epoch_lines(tmp_path / "cut")
    assert len(callback.messages_with("instance:")) == 2  # once per stage, however often it was resumed


def test_a_run_is_not_resumed_with_other_groups(dual_path, tmp_path):
    recipe = dual_path.one_stage()
    with pytest.raises(KeyboardInterrupt):
        dual_path.train(recipe, tmp_path, callback=RecordingCallback((2,)))
    before = snapshot_path(tmp_path).read_bytes()
    with pytest.raises(RunError, match=r"snapshot\.safetensors: made with other data; resume with the same data"):
        dual_path.train(recipe, tmp_path, with_merged_groups(dual_path.corpus), resume=True)
    assert snapshot_path(tmp_path).read_bytes() == before
    dual_path.train(recipe, tmp_path, resume=True)
