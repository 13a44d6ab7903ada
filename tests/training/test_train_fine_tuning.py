"""Recipes of several stages from the first to the last, and a stop in the midst of everything that draws at random."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.formats.scenes import make_scenes
from diptych.features import readers as reader
from diptych.features.backbones.registry import load_backbone
from diptych.model import Model
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.runs import epoch_lines, last_weights

SIDE = "model.image.side=64"
SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "text.threshold=1", SIDE]
BACKBONE = "image.backbone."


@pytest.fixture(scope="module")
def corpus():
    """Six pairs to train on, two of them in restval, and two to validate."""
    scenes = make_scenes(train=6, val=2, test=1, texts=1)
    images, texts = scenes.image_splits.astype("<U7"), scenes.text_splits.astype("<U7")
    for splits in (images, texts):
        splits[np.flatnonzero(splits == "train")[-2:]] = "restval"
    return replace(scenes, image_splits=images, text_splits=texts)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


def every_stage(name, *changes):
    """A packaged recipe with all of its stages, one epoch each; other backbones' weights come from a hub."""
    stages = len(load_recipe(name).stage)
    epochs = [f"stage.{number}.epochs=1" for number in range(1, stages + 1)]
    return load_recipe(name, [*SMALL, "model.image.backbone=lite0", *epochs, *changes])


@pytest.fixture
def random_crops(monkeypatch):
    """A list that grows with every random crop."""
    drawn = []

    def counted(*arguments):
        drawn.append(arguments)
        return random_crop(*arguments)

    random_crop = reader.random_crop
    monkeypatch.setattr(reader, "random_crop", counted)
    return drawn


def test_the_whole_network_is_fine_tuned_after_the_frozen_stage(corpus, stores, tmp_path, random_crops):
    recipe = every_stage("vsepp-rc-rv-vgg19-ft", "stage.1.batches.size=4", "stage.2.batches.size=4")
    callback = RecordingCallback()
    run = train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[callback], features=stores)
    assert [line["stage"] for line in epoch_lines(run)] == [1, 2]
    assert callback.steps == 2 * 2  # six pairs in batches of four: restval was trained on in both stages
    assert len(random_crops) == 2 * 6
    frozen, tuned = load_file(run / "stage-1" / "weights.safetensors"), last_weights(run)
    pretrained = {f"{BACKBONE}{name}": value for name, value in load_backbone("lite0").state_dict().items()}
    assert all(torch.equal(frozen[name], value) for name, value in pretrained.items())
    moved = {name for name in frozen if not torch.equal(frozen[name], tuned[name])}
    for part in ("stem", *(f"blocks.{number}" for number in range(16)), "head"):
        assert any(name.startswith(f"{BACKBONE}{part}.") for name in moved), part
    assert not any("running" in name for name in moved)
    parameters = {name for name, _ in Model.load(run, "cpu").matcher.named_parameters()}
    state = {name for name in load_file(snapshot_path(run)) if name.endswith(".exp_avg")}
    assert state == {f"optimiser.{name}.exp_avg" for name in parameters}


def test_random_crops_after_stored_features_leave_the_backbone_alone(corpus, stores, tmp_path, random_crops):
    run = train(every_stage("vsepp-rc-small"), corpus, tmp_path, device="cpu", workers=0, features=stores)
    assert [line["stage"] for line in epoch_lines(run)] == [1, 2]
    assert len(random_crops) == 4  # the second stage's training images; val is read from the store
    before, after = load_file(run / "stage-1" / "weights.safetensors"), last_weights(run)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert "project.weight" in moved
    assert not any(name.startswith("image.") for name in moved)


def test_the_curriculum_goes_from_sum_over_half_way_to_max(corpus, stores, tmp_path):
    # At a rate of nearly nothing the stages see one model, and one batch holds everything: only the objective differs.
    still = [f"stage.{number}.optimiser.rate=1e-12" for number in (1, 2, 3)]
    run = train(every_stage("vsepp-curriculum", *still), corpus, tmp_path, device="cpu", features=stores)
    lines = epoch_lines(run)
    assert [line["stage"] for line in lines] == [1, 2, 3]
    total, between, hardest = (line["loss"] for line in lines)
    assert total > between > hardest > 0
    assert total < 3 * hardest  # a sum over the three negatives of four pairs


def test_stopping_amid_dropout_crops_a_cosine_and_parts_changes_nothing(corpus, stores, tmp_path):
    changes = [
        *("model.joint=16", "model.text={name='words', word=8, hidden=16, dropout=0.3}", "model.dropout=0.2"),
        *("text.threshold=1", SIDE, "stage.1.crops=RC", "stage.1.epochs=2", "stage.1.batches.size=2"),
        "stage.1.splits=['train', 'restval']",
        "stage.1.trainable=['project', 'text', 'image.backbone.head']",
        "stage.1.optimiser={rate=0.001, parts={image=0.5, 'text.words'=2.0}}",
        "stage.1.schedule={name='cosine', warm_up=0.5}",
    ]
    recipe = load_recipe("vsepp", changes)
    whole = train(recipe, corpus, tmp_path / "whole", device="cpu", workers=0, features=stores)
    stopped, callback = tmp_path / "stopped", RecordingCallback((2, 5))
    for turn in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, corpus, stopped, resume=turn > 0, device="cpu", callbacks=[callback], features=stores)
    train(recipe, corpus, stopped, resume=True, device="cpu", workers=2, callbacks=[callback], features=stores)
    assert callback.steps == 2 * 3  # every step was trained once, none twice
    assert snapshot_path(whole).read_bytes() == snapshot_path(stopped).read_bytes()
    best = (run / "best" / "weights.safetensors" for run in (whole, stopped))
    assert len({path.read_bytes() for path in best}) == 1
