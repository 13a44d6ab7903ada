"""What training begins with: the model, the words and the weights of another run, and what is refused first."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.origin import Origin
from diptych.data.splitting import SplitRule
from diptych.errors import DataError, DiptychError, RecipeError, RunError
from diptych.model import Model
from diptych.text.vocabulary import Vocabulary
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.corpora import with_features
from support.dual_path import GROUPS, without_groups
from support.matchers import InteractionSettings
from support.recipes import BASE, HEAD, MODEL, TINY


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("clusters", [GROUPS, GROUPS + 1])
def test_no_fewer_clusters_than_groups_are_refused_before_anything_begins(dual_path, clusters, stage):
    message = rf"objective\.clusters = {clusters}: the data has 14 groups; use fewer"
    dual_path.assert_refused(RecipeError, message, dual_path.two_stages(f"stage.{stage}.objective.clusters={clusters}"))


def test_clusters_need_a_frozen_backbone(dual_path):
    recipe = dual_path.one_stage("stage.1.objective.clusters=4", "stage.1.trainable=['all']")
    dual_path.assert_refused(RecipeError, r"objective\.clusters: .*freeze the backbone", recipe)


def test_clusters_of_a_later_stage_are_refused_before_the_first_begins(dual_path):
    recipe = dual_path.two_stages("stage.2.objective.clusters=4")
    dual_path.assert_refused(RecipeError, r"^stage\.2\.objective\.clusters: .*freeze the backbone", recipe)


@pytest.mark.parametrize("sampled", [2, 8])
def test_no_more_samples_than_a_batch_may_have_classes_are_refused_before_anything_begins(dual_path, sampled):
    message = rf"stage\.1\.objective\.sampled = {sampled}: .*batches\.size"
    dual_path.assert_refused(RecipeError, message, dual_path.one_stage(f"stage.1.objective.sampled={sampled}"))


def test_one_group_alone_is_refused(dual_path):
    train_groups = np.unique(dual_path.corpus.split("train").image_groups)[1:]
    alone = without_groups(without_groups(dual_path.corpus, "image", train_groups), "text", train_groups)
    dual_path.assert_refused(
        DataError, "all training images and texts belong to one group", dual_path.one_stage(), alone
    )


@pytest.mark.parametrize("head", [[], ["stage.1.head={output=4}"]], ids=["alone", "below a head"])
def test_views_are_refused_for_a_model_of_one_vector_an_image(dual_path, head):
    text = "{name='gru', word=4, hidden=6}"
    model = f"model={{name='vse', joint=6, image={{name='views', side=32}}, text={text}}}"
    recipe = dual_path.one_stage(model, "stage.1.trainable=['all']", *head)
    dual_path.assert_refused(RecipeError, r"^stage\.1\.model\.image: 'views' gives several vectors per image", recipe)


def test_a_refused_recipe_leaves_no_folder_behind(corpus, tmp_path):
    wrong = [
        ("stage.2.trainable=['txt']", RecipeError, r"stage\.2\.trainable: the model has no part 'txt'"),
        ("stage.2.start=nowhere", RecipeError, r"stage\.2\.start = .nowhere.: no such run"),
        ("text.vectors=nowhere.txt", DataError, r"nowhere\.txt"),
        ("text.threshold=100000", DataError, "100000"),
    ]
    for number, (change, error, words) in enumerate(wrong):
        folder = tmp_path / str(number)
        with pytest.raises(error, match=words):
            train(load_recipe("scenes", [*TINY, change]), corpus, folder, device="cpu")
        assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("scenes", [*TINY, "stage.1.batches.chunk=4"], r"^stage\.1\.batches\.chunk: 'instance' needs all scores"),
        (
            "phrases-scenes",
            ["stage.1.batches={size=16}"],
            r"^stage\.1\.objective: 'instance' makes each group of images and texts a class; phrases have no groups",
        ),
        ("scan-t2i-small", [], r"^stage\.1\.objective: 'instance' classifies vectors; use an embedding model"),
    ],
    ids=["chunk", "phrases", "sets"],
)
def test_what_a_classifier_cannot_be_combined_with(name, changes, words, corpus, tmp_path):
    recipe = load_recipe(name, [*changes, "stage.1.objective={name='instance'}"])
    with pytest.raises(RecipeError, match=words) as raised:
        train(recipe, corpus, tmp_path / "run", device="cpu")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_cuts_a_batch_norm_is_refused_before_anything_is_written(corpus, tmp_path):
    changes = [*TINY, "model.image.width=2", "model.image.pixels=32", "stage.2.batches.chunk=4"]
    with pytest.raises(RecipeError, match=r"^stage\.2\.batches\.chunk: image\.layers\.1 .*freeze it") as caught:
        train(load_recipe("scenes", changes), corpus, tmp_path / "run", device="cpu")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def refused(error, match, *arguments, **named):
    """The training is refused in one line, and nothing is left behind."""
    with pytest.raises(error, match=match) as caught:
        train(*arguments, device="cpu", **named)
    assert "\n" not in str(caught.value)
    assert not list(arguments[2].rglob("*")), "something was written"


@pytest.mark.parametrize("start", ["scratch", "previous"])
def test_a_recipe_without_a_model_and_a_run_to_start_from_is_refused(start, head_only, corpus, tmp_path):
    refused(RecipeError, r"the recipe has no model: name the run.*stage\.1\.start", head_only(start), corpus, tmp_path)


def test_a_run_that_is_not_there_is_named(head_only, corpus, tmp_path):
    missing = tmp_path.parent / f"{tmp_path.name}-missing"
    refused(DiptychError, rf"{missing.name}.*no such run", head_only(missing), corpus, tmp_path)


def test_a_part_without_its_base_is_named(base, head_only, corpus, tmp_path):
    recipe = head_only(base, "stage.1.trainable=['project', 'head_image']")
    refused(RecipeError, r"stage\.1\.trainable: the model has no part 'project'", recipe, corpus, tmp_path)
    recipe = head_only(base, "stage.1.trainable=['head_image']")
    refused(RecipeError, r"no part 'head_image'; did you mean 'head_images'", recipe, corpus, tmp_path)


def test_a_later_stage_from_a_run_with_other_words_is_refused(base, recipes, corpus, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(base, other)
    Vocabulary.from_texts(["some quite different words"], 1).save(other)
    recipe = recipes(MODEL + BASE + HEAD, f"stage.2.start={other}")
    refused(RunError, rf"{other}: has another tokeniser", recipe, corpus, tmp_path / "run")


def test_a_base_that_was_trained_with_other_splits_of_the_data_is_refused(base, recipes, corpus, tmp_path):
    other, addressed = shutil.copytree(base, tmp_path / "other"), replace(corpus, address="photos.csv")
    Origin("photos.csv", "digest", SplitRule(0.15, 0.15)).save(other)
    recipe = recipes(MODEL + BASE, f"stage.1.start={other}")
    refused(RunError, rf"{other}: was trained with the splits val 0\.15", recipe, addressed, tmp_path / "run")


def test_an_error_of_the_model_does_not_name_a_stage(recipes, corpus, tmp_path):
    recipe = recipes(MODEL + BASE, "model.joint=8")
    refused(RecipeError, "^the text tower's vectors have size 16 and model.joint is 8", recipe, corpus, tmp_path)


def test_a_base_of_another_joint_size_is_refused(base, recipes, corpus, tmp_path):
    changes = ["model.joint=8", "model.text.hidden=8"]
    first = recipes(MODEL + HEAD, f"stage.1.start={base}", *changes)
    refused(RunError, rf"{base}: its model has joint = 16, .* ask for 8", first, corpus, tmp_path / "first")
    later = recipes(MODEL + BASE + HEAD, f"stage.2.start={base}", *changes)
    refused(RunError, rf"{base}: its model has joint = 16, .* ask for 8", later, corpus, tmp_path / "later")


def test_features_of_another_size_than_the_base_read_are_refused(recipes, head_only, corpus, tmp_path):
    features = recipes(MODEL + BASE, "model.image={name='features'}", "stage.1.epochs=1")
    run = train(features, with_features(corpus, 12), tmp_path / "base", device="cpu", workers=0)
    recipe = head_only(run, "stage.1.trainable=['head_images', 'head_texts']")
    refused(DiptychError, r"(?=.*12)(?=.*6)", recipe, with_features(corpus, 6), tmp_path / "run")
    again = train(recipe, with_features(corpus, 12), tmp_path / "run", device="cpu", workers=0)
    assert Model.load(again, "cpu").matcher.embedding_dim == 8


@pytest.mark.parametrize("stage", [1, 2])
def test_a_head_on_what_is_no_embedding_model_is_refused(stage, recipes, corpus, tmp_path):
    recipe = recipes(BASE + HEAD, *(["stage.1.head={}"] if stage == 1 else [])).model_copy(
        update={"model": InteractionSettings()}
    )
    message = rf"^stage\.{stage}\.head: needs an embedding model.*:InteractionSettings' is not"
    refused(RecipeError, message, recipe, corpus, tmp_path)


def test_images_among_images_need_an_embedding_model(recipes, corpus, tmp_path):
    recipe = recipes(BASE, "stage.1.objective={name='mvn'}").model_copy(update={"model": InteractionSettings()})
    refused(RecipeError, r"^stage\.1\.objective: 'mvn' compares images with images", recipe, corpus, tmp_path)


def test_the_words_are_those_of_the_base_not_of_the_corpus(base, head_only, corpus, tmp_path):
    other = replace(corpus, texts=["zebra " + text for text in corpus.texts])
    run = train(head_only(base), other, tmp_path / "run", device="cpu", workers=0)
    assert (run / "vocabulary.json").read_bytes() == (base / "vocabulary.json").read_bytes()
    assert "zebra" not in (run / "vocabulary.json").read_text()


def test_a_stage_can_start_from_another_run(whole, corpus, tmp_path):
    changes = [*TINY, f"stage.1.start={whole}", "stage.1.optimiser.rate=1e-12", "stage.2.epochs=1"]
    run = train(load_recipe("scenes", changes), corpus, tmp_path / "run", device="cpu")
    base = load_file(whole / "best" / "weights.safetensors")
    started = load_file(run / "stage-1" / "weights.safetensors")
    for name in ("project.weight", "text.words.weight"):
        torch.testing.assert_close(started[name], base[name], atol=1e-6, rtol=0)
    with pytest.raises(RunError, match="its model has joint = 16, recipe and data ask for 8"):
        train(load_recipe("scenes", [*changes, "model.joint=8", "model.text.hidden=8"]), corpus, tmp_path / "other")
