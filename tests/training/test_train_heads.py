"""Training with heads on a few small scenes: on a stage before, on another run, on a run that does not fit."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.model import Model
from diptych.models.matchers.projected import Projected
from diptych.models.matchers.vse import VSE
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.recipes import BASE, HEAD, MODEL
from support.runs import journal, load_weights


@pytest.fixture(scope="module")
def both(recipes):
    return recipes(MODEL + BASE + HEAD)


@pytest.fixture(scope="module")
def headed(both, corpus, tmp_path_factory):
    """A run whose second stage has a head."""
    return train(both, corpus, tmp_path_factory.mktemp("runs") / "headed", device="cpu", workers=0)


def test_the_image_tower_stays_and_the_head_learns(headed, both):
    before, after = load_weights(headed, "stage-1"), load_file(snapshot_path(headed))
    frozen = [name for name in before if name.startswith("image.")]
    assert any(name.endswith("running_mean") for name in frozen)
    assert any(name.endswith("weight") for name in frozen)
    for name in frozen:
        assert torch.equal(before[name], after[f"model.base.{name}"]), name
    for name in ("project.weight", "text.words.weight", "text.gru.weight_hh_l0"):
        assert not torch.equal(before[name], after[f"model.base.{name}"]), name
    trained = {name.split(".")[1] for name in after if name.startswith("optimiser.")}
    assert trained == {"base", "head_images", "head_texts"}
    assert not any(name.startswith("optimiser.base.image.") for name in after)
    assert {name for name in after if name.startswith("model.head_texts.")} == {
        "model.head_texts.0.weight",
        "model.head_texts.2.weight",
        "model.head_texts.2.bias",
    }
    for side in ("head_images", "head_texts"):
        assert after[f"model.{side}.2.bias"].abs().max() > 0  # it began at zero
        assert after[f"optimiser.{side}.0.weight.exp_avg"].abs().max() > 0


def test_the_head_stage_starts_from_what_the_base_learned(both, corpus, tmp_path, recipes):
    slow = recipes(MODEL + BASE + HEAD, "stage.2.optimiser.rate=1e-12", "stage.2.epochs=1")
    run = train(slow, corpus, tmp_path / "run", device="cpu", workers=0)
    before, after = load_weights(run, "stage-1"), load_weights(run)
    for name, value in before.items():
        torch.testing.assert_close(after[f"base.{name}"], value, rtol=0, atol=1e-6)


def test_the_run_opens_as_what_was_trained(headed, corpus):
    trained = Model.load(headed, "cpu")
    assert isinstance(trained.matcher, Projected)
    assert isinstance(trained.matcher.base, VSE)
    assert trained.matcher.embedding_dim == 8
    encoded = trained.encode_corpus(corpus.split("val"))
    assert encoded.images.shape == (6, 8)
    assert load_recipe(str(headed / "recipe.toml")).stage[1].head.bias is False


def test_best_belongs_to_the_head_even_if_it_is_worse(corpus, tmp_path, recipes):
    # One dimension holds two directions: nothing can be told apart there.
    changes = ["stage.2.head.output=1", "stage.2.optimiser.rate=1e-12", "stage.1.epochs=4", "stage.2.epochs=1"]
    run = train(recipes(MODEL + BASE + HEAD, *changes), corpus, tmp_path / "run", device="cpu", workers=0)
    lines = [line for line in journal(run) if line["event"] == "epoch"]
    *firsts, head = [line["val"]["rsum"] for line in lines]
    assert head < max(firsts), "the head is not worse: this test would prove nothing"
    assert [line["best"] for line in lines if line["stage"] == 2] == [True]
    assert json.loads((run / "best" / "metrics.json").read_text())["stage"] == 2
    assert "head_images.0.weight" in load_weights(run)
    assert "project.weight" in load_weights(run, "stage-1")


@pytest.mark.parametrize("at", [(2,), (7, 10)], ids=["in stage 1", "in stage 2, twice"])
def test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(at, headed, both, corpus, tmp_path):
    callback = RecordingCallback(at)
    for turn in range(len(at)):
        with pytest.raises(KeyboardInterrupt):
            train(both, corpus, tmp_path, resume=turn > 0, device="cpu", workers=0, callbacks=[callback])
    train(both, corpus, tmp_path, resume=True, device="cpu", workers=1, callbacks=[callback])
    assert callback.steps == 12  # every step once
    for name in ("best/weights.safetensors", "stage-1/weights.safetensors", "last/snapshot.safetensors"):
        assert (tmp_path / name).read_bytes() == (headed / name).read_bytes()
    assert journal(tmp_path) == journal(headed)


def test_a_recipe_without_a_model_takes_that_of_the_run_it_starts_from(base, head_only, corpus, tmp_path):
    recipe = head_only(base, "stage.1.optimiser.rate=1e-12")
    assert recipe.model is None
    run = train(recipe, corpus, tmp_path / "run", device="cpu", workers=0)
    trained = Model.load(run, "cpu")
    assert trained.matcher.settings.base == Model.load(base, "cpu").matcher.settings
    assert trained.vocabulary == Vocabulary.load(base / "vocabulary.json")
    before, after = load_weights(base), load_weights(run)
    for name, value in before.items():
        torch.testing.assert_close(after[f"base.{name}"], value, rtol=0, atol=1e-6)
    assert load_recipe(str(run / "recipe.toml")).model == Model.load(base, "cpu").matcher.settings


def epoch_metrics(recipe, corpus, run):
    """The metrics on val of epoch 0, which is what the recipe starts from with heads, and of epoch 1."""
    lines = [line for line in journal(train(recipe, corpus, run, device="cpu", workers=0)) if line["event"] == "epoch"]
    assert [line["epoch"] for line in lines] == [0, 1]
    return [line["val"] for line in lines]


@pytest.mark.parametrize("method", ["convse", "convsepp", "mvn"])
def test_residual_heads_start_with_the_recall_of_the_run(method, base, corpus, tmp_path):
    """Not by chance: heads that start at random do not."""
    changes = [f"stage.1.start={base}", "stage.1.include_start=true", "stage.1.epochs=1", "stage.1.head.hidden=12"]
    of_run = json.loads((base / "best" / "metrics.json").read_text())["val"]
    recipe = load_recipe(f"{method}-residual-head", [*changes, "stage.1.optimiser.rate=0.01"])
    start, trained = epoch_metrics(recipe, corpus, tmp_path / "residual")
    assert start == of_run
    assert trained != of_run, "the stage has trained nothing: this test would prove nothing"
    start, _ = epoch_metrics(load_recipe(f"{method}-head", changes), corpus, tmp_path / "plain")
    assert start != of_run


def test_the_control_and_mvn_without_heads_keep_the_model_of_the_run(base, corpus, tmp_path):
    for recipe in ("convse-control-alone", "mvn-public-alone"):
        changes = [f"stage.1.start={base}", "stage.1.epochs=1", "stage.1.optimiser.rate=0.005"]
        run = train(load_recipe(recipe, changes), corpus, tmp_path / recipe, device="cpu", workers=0)
        assert Model.load(run, "cpu").matcher.settings == Model.load(base, "cpu").matcher.settings
        before, after = load_weights(base), load_weights(run)
        changed = {name for name, value in before.items() if not torch.equal(after[name], value)}
        assert changed
        assert not [name for name in changed if name.startswith("image.")]


def test_such_a_run_resumes_bit_for_bit(base, head_only, corpus, tmp_path):
    recipe = head_only(base)
    whole = train(recipe, corpus, tmp_path / "whole", device="cpu", workers=0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path / "cut", device="cpu", workers=0, callbacks=[RecordingCallback((2,))])
    train(recipe, corpus, tmp_path / "cut", resume=True, device="cpu", workers=0)
    for name in ("best/weights.safetensors", "last/snapshot.safetensors", "recipe.toml"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()


def test_a_head_on_a_head(headed, head_only, corpus, tmp_path):
    recipe = head_only(headed, "stage.1.trainable=['head_images', 'head_texts']", "stage.1.head.output=4")
    run = train(recipe, corpus, tmp_path / "run", device="cpu", workers=0)
    before, after = load_weights(headed), load_weights(run)
    assert all(torch.equal(after[f"base.{name}"], value) for name, value in before.items())
    assert Model.load(run, "cpu").matcher.embedding_dim == 4


def test_a_stage_after_the_head_goes_on_with_it(corpus, tmp_path, recipes):
    third = HEAD.replace("head = { hidden = 12, output = 8, bias = false }\n", "")
    recipe = recipes(MODEL + BASE + HEAD + third, *(f"stage.{number}.epochs=1" for number in (1, 2, 3)))
    run = train(recipe, corpus, tmp_path / "run", device="cpu", workers=0)
    assert isinstance(Model.load(run, "cpu").matcher.base, VSE)  # one head, not two
    assert load_weights(run, "stage-2").keys() == load_weights(run).keys()


def test_a_learned_temperature_belongs_to_its_stage_and_resumes_bit_for_bit(base, head_only, corpus, tmp_path):
    changes = ["stage.1.objective={name='mvn', temperature=0.2, learn_temperature=true}", "stage.1.epochs=2"]
    recipe = head_only(base, *changes)
    whole = train(recipe, corpus, tmp_path / "whole", device="cpu", workers=0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path / "cut", device="cpu", workers=0, callbacks=[RecordingCallback((4,))])
    train(recipe, corpus, tmp_path / "cut", resume=True, device="cpu", workers=0)
    for name in ("best/weights.safetensors", "last/snapshot.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()
    learned = load_file(snapshot_path(whole))["objective.log_temperature"]
    assert abs(learned.item() - np.log(0.2)) > 0.001
    assert not any("temperature" in name for name in load_weights(whole))  # a matcher scores without it
