"""The run that training starts from: names, what fits, alternatives, new words and the starter."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from diptych.errors import RecipeError, RunError
from diptych.model import Model
from diptych.models.storage import load_tensors
from diptych.text.vocabulary import Vocabulary
from diptych.training.recipe_loader import load_recipe
from diptych.training.start import settle
from diptych.training.start_run import StartRun, choose_start
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.recipes import BASE, HEAD, MODEL
from support.runs import assert_same_run, epoch_lines, load_weights

GROWING = ["text.grow=true", "text.threshold=1"]


def silent(_message):
    pass


@pytest.mark.parametrize(("name", "offer"), [("startr", "starter"), ("scrach", "scratch"), ("previus", "previous")])
def test_a_misspelt_start_is_offered_the_right_one(name, offer):
    with pytest.raises(RecipeError, match=rf"stage\.2\.start = '{name}': no such run; did you mean '{offer}'\?"):
        StartRun.find(name, 2)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"not a run: it has no vocabulary\.json"):
        StartRun.find(str(tmp_path), 1)


def test_the_starter_is_the_package_s_unless_a_run_here_has_its_name(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert StartRun.find("starter", 1).settings.joint == 1024
    shutil.copytree(base, "starter")
    assert StartRun.find("starter", 1).settings.joint == 16


def test_what_no_weight_depends_on_may_differ():
    run = StartRun.find("starter", 1)
    same = run.settings.model_dump()
    image = {**same["image"], "crops": "1C", "side": 224, "resize": "short"}
    text = {**same["text"], "dropout": 0.1}
    assert run.misfit(type(run.settings)(**{**same, "image": image, "text": text, "dropout": 0.0})) is None
    image = {**same["image"], "backbone": "resnet18"}
    reason = run.misfit(type(run.settings)(**{**same, "image": image}))
    assert reason == "its model has image.backbone = lite0, recipe and data ask for resnet18"


def test_a_backbone_of_the_same_name_and_another_shape_does_not_fit(small_backbones):
    run = StartRun.find("starter", 1)
    with small_backbones():
        assert "weights image.backbone" in run.misfit(run.settings)


@pytest.mark.parametrize("profile", [None, "small"])
def test_the_default_recipe_starts_from_the_starter(profile, corpus):
    for name in ("diptych-default", "diptych-default-ft"):
        recipe = load_recipe(name, profile=profile)
        assert recipe.stage[0].start == ("starter", "scratch")
        messages = []
        settled = choose_start(recipe, corpus, None, messages.append)
        assert settled.stage[0].start == "starter"
        assert settled.stage[1:] == recipe.stage[1:]
        assert messages == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["model.joint=64", "model.text.hidden=64"], "joint = 1024, recipe and data ask for 64"),
        (["model.image.backbone=resnet18"], "image.backbone = lite0, recipe and data ask for resnet18"),
        (["model.text={name='gru'}"], "text.name = sentence, recipe and data ask for gru"),
    ],
)
def test_the_default_recipe_says_why_it_starts_from_scratch(change, reason, corpus):
    messages = []
    settled = choose_start(load_recipe("diptych-default", change), corpus, None, messages.append)
    assert settled.stage[0].start == "scratch"
    assert messages == [f"starts from scratch: starter does not fit, its model has {reason}"]


def test_a_training_tells_why_it_starts_from_scratch(recipes, corpus, tmp_path):
    callback = RecordingCallback()
    recipe = recipes(MODEL + BASE, "stage.1.start=['starter', 'scratch']", "stage.1.epochs=1")
    run = train(recipe, corpus, tmp_path / "run", device="cpu", workers=0, callbacks=[callback])
    assert callback.messages[0].startswith("starts from scratch: starter does not fit, its model has image.name = back")
    assert load_recipe(str(run / "recipe.toml")).stage[0].start == "scratch"


def test_data_with_features_of_its_own_starts_from_scratch(corpus):
    messages = []
    settled = choose_start(load_recipe("diptych-default"), with_features(corpus), None, messages.append)
    assert settled.stage[0].start == "scratch"
    assert "image.name = backbone, recipe and data ask for features" in messages[0]


def test_alternatives_that_do_not_fit_are_all_named(base, recipes, corpus):
    recipe = recipes(MODEL + BASE, f"stage.1.start=['starter', '{base}']", "model.joint=8", "model.text.hidden=8")
    with pytest.raises(RecipeError, match=r"stage\.1\.start: starter does not fit, .*joint = 16.*add 'scratch'"):
        choose_start(recipe, corpus, None, silent)
    with pytest.raises(RecipeError, match=r"no such run; did you mean 'starter'"):
        choose_start(recipes(MODEL + BASE, "stage.1.start=['startr', 'scratch']"), corpus, None, silent)
    with pytest.raises(RecipeError, match=r"stage\.2\.start: only the first stage"):
        choose_start(recipes(MODEL + BASE + HEAD, "stage.2.start=['previous', 'scratch']"), corpus, None, silent)


def test_a_recipe_without_a_model_takes_that_of_its_first_alternative(base, recipes, corpus):
    settled = settle(recipes(HEAD, f"stage.1.start=['{base}', 'starter']"), corpus, None)
    assert settled.stage[0].start == str(base)
    assert settled.model.joint == 16


def test_a_run_records_the_alternative_that_it_took_and_resumes_with_it(base, recipes, corpus, tmp_path):
    """Even if another one would fit by then."""
    here = tmp_path / "first"
    recipe = recipes(MODEL + BASE, f"stage.1.start=['{here}', '{base}', 'scratch']", "text.grow=true")
    shutil.copytree(base, here)
    about = tmp_path / "first" / "best" / "weights.safetensors"
    shutil.copyfile(StartRun.find("starter", 1).folder / "best" / "weights.safetensors", about)  # does not fit
    whole = train(recipe, corpus, tmp_path / "whole", device="cpu", workers=0)
    assert load_recipe(str(whole / "recipe.toml")).stage[0].start == str(base)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path / "run", device="cpu", workers=0, callbacks=[RecordingCallback((4,))])
    shutil.copyfile(base / "best" / "weights.safetensors", about)  # fits now
    assert choose_start(recipe, corpus, None, silent).stage[0].start == str(here)
    train(recipe, corpus, tmp_path / "run", resume=True, device="cpu", workers=0)
    assert_same_run(whole, tmp_path / "run")


def growing(recipes, base, *changes):
    return recipes(MODEL + BASE, f"stage.1.start={base}", "stage.1.include_start=true", *GROWING, *changes)


@pytest.fixture(scope="module")
def zebras(corpus):
    """The corpus with a word in every text that no run knows."""
    return replace(corpus, texts=["zebra " + text for text in corpus.texts])


def test_new_words_are_added_and_known_ones_keep_their_vectors(base, recipes, zebras, tmp_path):
    callback = RecordingCallback()
    recipe = growing(recipes, base, "stage.1.optimiser.rate=1e-12", "stage.1.epochs=1")
    run = train(recipe, zebras, tmp_path / "run", device="cpu", workers=0, callbacks=[callback])
    before, after = (Vocabulary.load(folder / "vocabulary.json") for folder in (base, run))
    assert after.words[: len(before.words)] == before.words
    assert "zebra" in after.words[len(before.words) :]
    old, new = load_weights(base)["text.words.weight"], load_weights(run)["text.words.weight"]
    assert new.shape[0] == len(after)
    torch.testing.assert_close(new[: len(old)], old, atol=1e-6, rtol=0)
    torch.testing.assert_close(new[after.ids["zebra"]], old[3], atol=1e-6, rtol=0)  # the unknown word
    assert f"words: {len(before.words)} of {base}, and 1 more of the training texts" in callback.messages
    assert Model.load(run, "cpu").unknown_words("zebra gnu") == ["gnu"]


def test_the_start_with_new_words_scores_as_the_run_does(base, recipes, zebras, tmp_path):
    run = train(growing(recipes, base, "stage.1.epochs=1"), zebras, tmp_path / "run", device="cpu", workers=0)
    start = epoch_lines(run)[0]
    assert start["epoch"] == 0
    known = recipes(MODEL + BASE, f"stage.1.start={base}", "stage.1.include_start=true", "stage.1.epochs=1")
    assert start["val"] == epoch_lines(train(known, zebras, tmp_path / "known", device="cpu", workers=0))[0]["val"]


def test_a_run_with_new_words_resumes_alike(base, recipes, zebras, tmp_path):
    recipe = growing(recipes, base)
    whole = train(recipe, zebras, tmp_path / "whole", device="cpu", workers=0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, zebras, tmp_path / "run", device="cpu", workers=0, callbacks=[RecordingCallback((4,))])
    train(recipe, zebras, tmp_path / "run", resume=True, device="cpu", workers=0)
    assert_same_run(whole, tmp_path / "run")


def test_a_later_stage_grows_with_the_words_of_the_first(base, recipes, zebras, tmp_path):
    later = f"stage.2.start={base}"
    recipe = recipes(MODEL + BASE + HEAD, f"stage.1.start={base}", later, *GROWING, "stage.2.optimiser.rate=1e-12")
    run = train(recipe, zebras, tmp_path / "run", device="cpu", workers=0)
    old, new = load_weights(base)["text.words.weight"], load_weights(run)["base.text.words.weight"]
    assert len(new) == len(old) + 1
    torch.testing.assert_close(new[: len(old)], old, atol=1e-6, rtol=0)


def test_a_fitted_text_tower_refuses_new_words(recipes, corpus, zebras, tmp_path):
    fitted = ["model.text={name='tfidf'}", "model.text_projection=true", "stage.1.epochs=1", "text.threshold=1"]
    features = with_features(corpus), with_features(zebras)
    recipe = recipes(MODEL + BASE, "model.image={name='features'}", *fitted)
    run = train(recipe, features[0], tmp_path / "fitted", device="cpu", workers=0)
    again = recipes(MODEL + BASE, "model.image={name='features'}", *fitted, f"stage.1.start={run}", "text.grow=true")
    with pytest.raises(RecipeError, match=r"text\.grow: the text tower 'tfidf' was fitted"):
        train(again, features[1], tmp_path / "run", device="cpu", workers=0)
    assert not (tmp_path / "run").exists()
    train(again, features[0], tmp_path / "run", device="cpu", workers=0)  # without new words there is nothing to refuse


def test_training_from_the_starter_is_in_float32(corpus):
    run = StartRun.find("starter", 1)
    matcher = run.matcher(run.settings, run.tokeniser, None)
    assert {value.dtype for value in matcher.state_dict().values()} == {torch.float32, torch.int64}
    tensors, about = load_tensors(run.folder / "best" / "weights.safetensors")
    assert torch.equal(matcher.state_dict()["project.weight"], tensors["project.weight"].float())
    assert json.dumps(about)
