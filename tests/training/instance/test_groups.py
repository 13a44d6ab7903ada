"""What is a class: groups and clusters of them, other groups than before, groups that lack a side."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.errors import DataError, RecipeError
from diptych.training.train import train

GROUPS = 14


def without(corpus, column, groups):
    """The corpus without the images, or without the texts, of some groups."""
    kept = {name: np.arange(len(getattr(corpus, f"{name}_groups"))) for name in ("image", "text")}
    kept[column] = np.flatnonzero(~np.isin(getattr(corpus, f"{column}_groups"), groups))
    return corpus.take(kept["image"], kept["text"])


@pytest.fixture(scope="module")
def lacking(corpus):
    """A corpus whose first training group has no image, and the next two no text."""
    first, second, third, *_ = np.unique(corpus.split("train").image_groups)
    return without(without(corpus, "image", [first]), "text", [second, third])


def test_clusters_are_classes_and_stay_so_in_the_second_stage(two_stages, trained, tmp_path, classifier):
    # The second stage trains the backbone, whose features could not be clustered again.
    recipe = two_stages(*(f"stage.{number}.objective.clusters=4" for number in (1, 2)))
    run, watcher = trained(recipe, tmp_path / "run")
    first, last = classifier(run, "stage-1"), classifier(run)
    assert first["classifier"].shape == (4, 6)
    assert first["labels"].unique().tolist() == [0, 1, 2, 3]
    assert torch.equal(first["labels"], last["labels"])
    assert [line.split(";")[0] for line in watcher.of_classes()] == ["instance: 4 classes"] * 2


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("clusters", [GROUPS, GROUPS + 1])
def test_no_fewer_clusters_than_groups_are_refused_before_anything_begins(clusters, stage, two_stages, refused):
    message = rf"objective\.clusters = {clusters}: the data has 14 groups; use fewer"
    refused(RecipeError, message, two_stages(f"stage.{stage}.objective.clusters={clusters}"))


def test_clusters_need_a_frozen_backbone(one_stage, refused):
    recipe = one_stage("stage.1.objective.clusters=4", "stage.1.trainable=['all']")
    refused(RecipeError, r"objective\.clusters: .*freeze the backbone", recipe)


def test_what_is_wrong_with_clusters_of_a_later_stage_is_told_before_the_first(two_stages, refused):
    recipe = two_stages("stage.2.objective.clusters=4")
    refused(RecipeError, r"^stage\.2\.objective\.clusters: .*freeze the backbone", recipe)


@pytest.mark.parametrize("sampled", [2, 8])
def test_no_more_samples_than_a_batch_may_have_classes_are_refused_before_anything_begins(sampled, one_stage, refused):
    message = rf"stage\.1\.objective\.sampled = {sampled}: .*batches\.size"
    refused(RecipeError, message, one_stage(f"stage.1.objective.sampled={sampled}"))


def test_a_stage_on_other_groups_begins_with_a_fresh_classifier_and_says_so(
    both, one_stage, trained, corpus, tmp_path, classifier, regrouped
):
    recipe = one_stage(f"stage.1.start={both[0]}", "stage.1.epochs=1")
    run, watcher = trained(recipe, tmp_path / "other", regrouped(corpus))
    assert watcher.of_classes() == ["instance: 13 classes; the classifier is fresh"]
    assert classifier(run)["classifier"].shape == (13, 6)
    _, watcher = trained(recipe, tmp_path / "same")
    assert watcher.of_classes() == [f"instance: 14 classes; the classifier is that of {both[0] / 'best'}"]
    assert torch.equal(watcher.firsts[1]["objective.classifier"], classifier(both[0])["classifier"])


def test_other_scenes_with_as_many_groups_begin_with_a_fresh_classifier(both, one_stage, trained, tmp_path, scenes):
    recipe = one_stage(f"stage.1.start={both[0]}", "stage.1.epochs=1")
    _, watcher = trained(recipe, tmp_path / "run", scenes(seed=5))
    assert watcher.of_classes() == ["instance: 14 classes; the classifier is fresh"]


LEFT_OUT = (
    "left out of training, because their groups lack the other side: images 4, texts 2; `diptych data check` names them"
)


def left_out(watcher):
    return [line for line in watcher.said if "left out" in line]


def test_groups_without_an_image_or_a_text_are_left_out_and_told_once(
    two_stages, trained, corpus, lacking, tmp_path, classifier
):
    run, watcher = trained(two_stages("stage.1.epochs=1", "stage.2.epochs=1"), tmp_path / "run", lacking)
    assert left_out(watcher) == [LEFT_OUT]
    assert watcher.of_classes()[0] == "instance: 11 classes; the classifier is fresh"
    lost = np.unique(corpus.split("train").image_groups)[:3]
    assert not np.isin(classifier(run)["groups"].numpy(), lost).any()


def test_a_run_that_goes_on_does_not_tell_again(one_stage, lacking, stores, tmp_path, watching):
    first, again = watching(stops=(1,)), watching()
    with pytest.raises(KeyboardInterrupt):
        train(one_stage(), lacking, tmp_path, device="cpu", callback=first, features=stores)
    train(one_stage(), lacking, tmp_path, resume=True, device="cpu", callback=again, features=stores)
    assert left_out(first) == [LEFT_OUT]
    assert left_out(again) == []


def test_a_stage_on_other_splits_tells_what_these_lack(two_stages, trained, lacking, tmp_path):
    # The second stage adds a split that has the group without an image, and a whole one.
    groups = lacking.split("train").text_groups
    added = [groups.min(), groups.max()]
    splits = {
        f"{side}_splits": np.where(
            np.isin(getattr(lacking, f"{side}_groups"), added), "restval", getattr(lacking, f"{side}_splits")
        )
        for side in ("image", "text")
    }
    recipe = two_stages("stage.1.epochs=1", "stage.2.epochs=1", "stage.2.splits=['train', 'restval']")
    _, watcher = trained(recipe, tmp_path / "run", replace(lacking, **splits))
    assert left_out(watcher) == [LEFT_OUT.replace("texts 2", "texts 0"), LEFT_OUT]


def test_nothing_is_said_where_nothing_is_left_out(both):
    assert not any("left out" in line for line in both[1].said)


def test_one_group_alone_is_refused(one_stage, refused, corpus):
    train_groups = np.unique(corpus.split("train").image_groups)[1:]
    alone = without(without(corpus, "image", train_groups), "text", train_groups)
    refused(DataError, "all training images and texts belong to one group", one_stage(), alone)


def test_features_for_clusters_are_read_once(one_stage, trained, scenes, tmp_path):
    small = scenes(side=24)
    recipe = one_stage("stage.1.epochs=1", "stage.1.objective.clusters=4")
    _, watcher = trained(recipe, tmp_path / "run", small, features=tmp_path / "features")
    train_size, val_size = len(small.split("train").image_ids), len(small.split("val").image_ids)
    ends = [total for what, done, total in watcher.prepared if what == "features" and done == total]
    assert ends == [train_size, val_size]
    told = [line.split(" ")[0] for line in watcher.said if "smaller than the crop" in line]
    assert told == [str(train_size), str(val_size)]
