"""Stages I and II of the dual-path model on a few small scenes: the classifier, its classes, stops, other data."""

import json
import os
import shutil
import signal
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from diptych.data.corpus import Features
from diptych.data.scenes import make_scenes
from diptych.errors import DataError, RecipeError, RunError
from diptych.features.backbone import Backbone
from diptych.models import pretrained
from diptych.models.text_towers import cnn
from diptych.models.trained import Trained
from diptych.objectives.instance import Instance
from diptych.text.vocabulary import Vocabulary
from diptych.training.checkpoint import Snapshot, snapshot_path
from diptych.training.progress import Silent
from diptych.training.recipe import load_recipe
from diptych.training.train import train

RECIPE = """
[model]
name = "dual_path"
hidden = 8
joint = 6
dropout = 0.5
image = { name = "views", side = 32 }
text = { name = "cnn", depth = "small", word = 4, length = 16 }

[text]
threshold = 1

[[stage]]
trainable = ["image_head", "text", "text_head"]
epochs = 2
objective = { name = "instance" }
batches = { size = 8 }
optimiser = { name = "sgd", rate = 0.05, momentum = 0.9, nesterov = true, decay = 0.001, clip = 0 }
"""
SECOND = """
[[stage]]
start = "previous"
crops = "window"
epochs = 2
objective = { name = "instance", rank = 1.0 }
batches = { size = 8 }
optimiser = { name = "sgd", rate = 0.05, momentum = 0.9, clip = 0, parts = { image = 0.01 } }
"""
GROUPS, TEXTS = 14, 2
STEPS = 4  # an epoch: 28 pairs in batches of 8


class Colours(Backbone):
    """Mean and largest value of each colour, in the left half of a photo."""

    name, side, size, grid, any_side = "colours", 32, 6, (1, 6), True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))

    def regions(self, pixels):
        half = (pixels.float() * self.scale)[..., : pixels.shape[-1] // 2].flatten(2)
        return torch.cat([half.mean(2), half.amax(2)], 1)[:, None]

    def forward(self, pixels):
        return self.regions(pixels)[:, 0]


@pytest.fixture(scope="module", autouse=True)
def tiny():
    """Every backbone has one weight, and the text CNN two small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cnn, "DEPTHS", {"small": ((8, 1), (12, 1))})
        for name in ("build_backbone", "load_backbone"):
            patch.setattr(pretrained, name, lambda *_: Colours().eval())
        yield


class Watched(Silent):
    """Keeps what is said and the first snapshot of each stage, and presses Ctrl-C at some steps."""

    def __init__(self, run=None, stops=()):
        self.said, self.firsts, self.count = [], {}, 0
        self.run, self.stops = run, stops

    def say(self, message, style=""):
        self.said.append(message)

    def stage(self, number, of, steps, done):
        if self.run is not None:
            self.firsts[number] = load_file(snapshot_path(self.run))

    def step(self, epoch, loss, pairs_per_second):
        self.count += 1
        if self.count in self.stops:
            os.kill(os.getpid(), signal.SIGINT)

    def of_classes(self):
        return [line for line in self.said if line.startswith("instance:")]


@dataclass(frozen=True)
class Drawn:
    """A picture that was drawn once, and small."""

    image: Image.Image

    def load(self):
        return self.image.copy()


def scenes(seed=0):
    """Fourteen scenes to train on, two pictures and two texts each."""
    made = make_scenes(train=GROUPS, val=4, test=2, images=2, texts=TEXTS, seed=seed)
    return replace(made, pictures=[Drawn(picture.load().resize((48, 48))) for picture in made.pictures])


@pytest.fixture(scope="module")
def corpus():
    return scenes()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")

    def load(text, *changes):
        (folder / "recipe.toml").write_text(text)
        return load_recipe(str(folder / "recipe.toml"), changes)

    return load


@pytest.fixture(scope="module")
def trained(corpus, stores):
    """Trains; the run, and what was said."""

    def run(recipe, into, corpus=corpus, **named):
        watcher = Watched(into)
        return train(recipe, corpus, into, device="cpu", workers=0, watcher=watcher, features=stores, **named), watcher

    return run


@pytest.fixture(scope="module")
def both(recipes, trained, tmp_path_factory):
    """A run of both stages, and what was said."""
    return trained(recipes(RECIPE + SECOND), tmp_path_factory.mktemp("runs") / "both")


@pytest.fixture
def refused(corpus, stores, tmp_path):
    def check(error, match, recipe, corpus=corpus):
        with pytest.raises(error, match=match) as caught:
            train(recipe, corpus, tmp_path / "run", device="cpu", workers=0, features=stores)
        assert "\n" not in str(caught.value)
        assert not list((tmp_path / "run").rglob("*")), "something was written"

    return check


def epochs_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "epoch"]


def classifier(run, folder="best"):
    return load_file(run / folder / "objective.safetensors")


def test_both_stages_train_and_the_classifier_is_kept_beside_the_weights(both):
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
    opened = Trained.open(run, "cpu")
    assert opened.encode(corpus.split("val")).images.shape == (8, 6)


def test_the_second_stage_goes_on_with_the_classifier_of_the_first(both):
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
def test_the_journal_tells_the_shares_that_were_classified_wrongly(size, recipes, trained, tmp_path, monkeypatch):
    seen = []

    def watched(self, batch):
        loss = call(self, batch)
        seen.append((len(batch.scores), loss.errors))
        return loss

    call = Instance.__call__
    monkeypatch.setattr(Instance, "__call__", watched)
    run, _ = trained(recipes(RECIPE, "stage.1.epochs=1", f"stage.1.batches.size={size}"), tmp_path / "run")
    (line,) = epochs_of(run)
    for side in ("visual", "textual"):
        wrong = sum(pairs * float(errors[side]) for pairs, errors in seen)
        assert line["class_error"][side] == pytest.approx(100 * wrong / sum(pairs for pairs, _ in seen))
        assert 0 < line["class_error"][side] <= 100
    assert line["class_error"].keys() == {"visual", "textual"}


def test_only_what_classifies_tells_of_errors(recipes, trained, tmp_path):
    run, watcher = trained(
        recipes(RECIPE, "stage.1.epochs=1", "stage.1.objective={name='instance', rank=1.0, visual=0, textual=0}"),
        tmp_path / "run",
    )
    (line,) = epochs_of(run)
    assert "class_error" not in line
    assert not (run / "best" / "objective.safetensors").exists()
    assert watcher.of_classes() == []


def test_ranking_after_instance_loss_leaves_no_old_classifier_in_best(recipes, trained, tmp_path):
    run, _ = trained(recipes(RECIPE + SECOND, "stage.2.objective={name='hinge', negatives='sum'}"), tmp_path / "run")
    assert (run / "stage-1" / "objective.safetensors").exists()
    assert not (run / "best" / "objective.safetensors").exists()


def test_the_loss_of_the_classifier_falls(recipes, trained, tmp_path):
    changes = ["stage.1.epochs=20", "stage.1.optimiser.rate=0.5", "model.dropout=0", "stage.1.batches.size=14"]
    run, _ = trained(recipes(RECIPE, *changes), tmp_path / "run")
    losses = [line["terms"]["textual"] for line in epochs_of(run)]
    assert losses[-1] < 0.8 * losses[0]


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
def test_a_run_that_was_stopped_ends_bit_for_bit_like_one_that_was_not(
    kind, recipes, trained, corpus, stores, tmp_path
):
    recipe = recipes(RECIPE + SECOND, *KINDS[kind])
    whole, _ = trained(recipe, tmp_path / "whole")
    watcher, stops = Watched(stops=(2, 7, 11)), 3
    for turn in range(stops):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, corpus, tmp_path / "cut", resume=turn > 0, device="cpu", watcher=watcher, features=stores)
    train(recipe, corpus, tmp_path / "cut", resume=True, device="cpu", watcher=watcher, features=stores)
    assert watcher.count == 2 * 2 * STEPS
    files = [
        *("best/weights.safetensors", "best/objective.safetensors", "last/snapshot.safetensors"),
        *("stage-1/weights.safetensors", "stage-1/objective.safetensors"),
    ]
    for name in files:
        assert (whole / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name
    told = [[{**line, "seconds": 0} for line in epochs_of(run)] for run in (whole, tmp_path / "cut")]
    assert told[0] == told[1]
    assert len(watcher.of_classes()) == 2  # once a stage, however often it goes on


@pytest.mark.parametrize("second", [None, 9, 11], ids=["all", "as many", "more"])
def test_a_sampled_classifier_goes_on_whole(second, recipes, trained, tmp_path):
    changes = ["stage.1.objective.sampled=9", "stage.2.optimiser.rate=1e-12"]
    changes += [] if second is None else [f"stage.2.objective.sampled={second}"]
    run, watcher = trained(recipes(RECIPE + SECOND, *changes), tmp_path / "run")
    before, after = classifier(run, "stage-1")["classifier"], classifier(run)["classifier"]
    assert before.shape == after.shape == (GROUPS, 6)
    torch.testing.assert_close(before, after, rtol=0, atol=1e-8)
    assert watcher.of_classes()[1].endswith(str(run / "stage-1"))


def test_as_many_samples_as_classes_are_all_of_them(recipes, trained, tmp_path):
    one = [recipes(RECIPE, "stage.1.epochs=1", *more) for more in ((), (f"stage.1.objective.sampled={GROUPS}",))]
    runs = [trained(recipe, tmp_path / str(number))[0] for number, recipe in enumerate(one)]
    weights = [(run / "best" / "objective.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1]


def test_clusters_are_classes_and_stay_so_in_the_second_stage(recipes, trained, tmp_path):
    # The second stage trains the backbone, whose features could not be clustered again.
    recipe = recipes(RECIPE + SECOND, *KINDS["clusters"])
    run, watcher = trained(recipe, tmp_path / "run")
    first, last = classifier(run, "stage-1"), classifier(run)
    assert first["classifier"].shape == (4, 6)
    assert first["labels"].unique().tolist() == [0, 1, 2, 3]
    assert torch.equal(first["labels"], last["labels"])
    assert [line.split(";")[0] for line in watcher.of_classes()] == ["instance: 4 classes"] * 2


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("clusters", [GROUPS, GROUPS + 1])
def test_no_fewer_clusters_than_groups_are_refused_before_anything_begins(clusters, stage, recipes, refused):
    message = rf"objective\.clusters = {clusters}: there are 14 groups; take fewer"
    refused(RecipeError, message, recipes(RECIPE + SECOND, f"stage.{stage}.objective.clusters={clusters}"))


def test_clusters_need_a_frozen_backbone(recipes, refused):
    recipe = recipes(RECIPE, "stage.1.objective.clusters=4", "stage.1.trainable=['all']")
    refused(RecipeError, r"objective\.clusters: .*freeze the backbone", recipe)


def test_what_is_wrong_with_clusters_of_a_later_stage_is_told_before_the_first(recipes, refused):
    recipe = recipes(RECIPE + SECOND, "stage.2.objective.clusters=4")
    refused(RecipeError, r"^stage\.2\.objective\.clusters: .*freeze the backbone", recipe)


@pytest.mark.parametrize("sampled", [2, 8])
def test_no_more_samples_than_a_batch_may_have_classes_are_refused_before_anything_begins(sampled, recipes, refused):
    message = rf"stage\.1\.objective\.sampled = {sampled}: .*batches\.size"
    refused(RecipeError, message, recipes(RECIPE, f"stage.1.objective.sampled={sampled}"))


def regrouped(corpus):
    """The same images and texts, the first two scenes being one group."""
    groups = np.unique(corpus.image_groups)
    columns = {name: getattr(corpus, name).copy() for name in ("image_groups", "text_groups")}
    for column in columns.values():
        column[column == groups[1]] = groups[0]
    return replace(corpus, **columns)


def test_a_run_does_not_go_on_with_other_groups(recipes, corpus, stores, tmp_path):
    recipe = recipes(RECIPE)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, device="cpu", watcher=Watched(stops=(2,)), features=stores)
    before = snapshot_path(tmp_path).read_bytes()
    with pytest.raises(RunError, match=r"snapshot\.safetensors: made with other data; resume with the same data"):
        train(recipe, regrouped(corpus), tmp_path, resume=True, device="cpu", features=stores)
    assert snapshot_path(tmp_path).read_bytes() == before
    train(recipe, corpus, tmp_path, resume=True, device="cpu", features=stores)


def test_a_stage_on_other_groups_begins_with_a_fresh_classifier_and_says_so(both, recipes, trained, corpus, tmp_path):
    recipe = recipes(RECIPE, f"stage.1.start={both[0]}", "stage.1.epochs=1")
    run, watcher = trained(recipe, tmp_path / "other", regrouped(corpus))
    assert watcher.of_classes() == ["instance: 13 classes; the classifier is fresh"]
    assert classifier(run)["classifier"].shape == (13, 6)
    _, watcher = trained(recipe, tmp_path / "same")
    assert watcher.of_classes() == [f"instance: 14 classes; the classifier is that of {both[0] / 'best'}"]
    assert torch.equal(watcher.firsts[1]["objective.classifier"], classifier(both[0])["classifier"])


def test_other_scenes_with_as_many_groups_begin_with_a_fresh_classifier(both, recipes, trained, tmp_path):
    recipe = recipes(RECIPE, f"stage.1.start={both[0]}", "stage.1.epochs=1")
    _, watcher = trained(recipe, tmp_path / "run", scenes(seed=5))
    assert watcher.of_classes() == ["instance: 14 classes; the classifier is fresh"]


def without(corpus, column, groups):
    """The corpus without the images, or without the texts, of some groups."""
    kept = {name: np.arange(len(getattr(corpus, f"{name}_groups"))) for name in ("image", "text")}
    kept[column] = np.flatnonzero(~np.isin(getattr(corpus, f"{column}_groups"), groups))
    return corpus.take(kept["image"], kept["text"])


def test_groups_without_an_image_or_a_text_are_left_out_and_told(recipes, trained, corpus, tmp_path):
    first, second, third, *_ = np.unique(corpus.split("train").image_groups)
    less = without(without(corpus, "image", [first]), "text", [second, third])
    run, watcher = trained(recipes(RECIPE, "stage.1.epochs=1"), tmp_path / "run", less)
    assert "left out of training: 4 images of groups without a text, 2 texts of groups without an image" in str(
        watcher.said
    )
    assert watcher.of_classes() == ["instance: 11 classes; the classifier is fresh"]
    assert not set(classifier(run)["groups"].tolist()) & {first, second, third}


def test_nothing_is_said_where_nothing_is_left_out(both):
    assert not any("left out" in line for line in both[1].said)


def test_one_group_alone_is_refused(recipes, refused, corpus):
    train_groups = np.unique(corpus.split("train").image_groups)[1:]
    alone = without(without(corpus, "image", train_groups), "text", train_groups)
    refused(DataError, "all training images and texts are of one group", recipes(RECIPE), alone)


def test_a_corpus_with_own_features_needs_no_photos(recipes, trained, corpus, tmp_path):
    rows = [np.asarray(picture.load().resize((2, 2))).reshape(-1) / 255 for picture in corpus.pictures]
    own = replace(corpus, pictures=None, features=Features([np.array(rows, np.float32)]))
    run, watcher = trained(recipes(RECIPE, "stage.1.objective.clusters=3"), tmp_path / "run", own)
    assert classifier(run)["classifier"].shape == (3, 6)
    assert Trained.open(run, "cpu").encode(own.split("val")).images.shape == (8, 6)
    assert watcher.said


@pytest.fixture(scope="module")
def vectors(corpus, tmp_path_factory):
    """A file that lacks every third of the training words, and the words that it has."""
    words = Vocabulary.count(corpus.split("train").texts, 1).words
    has = [word for number, word in enumerate(words) if number % 3]
    rows = [f"{word} {number} 1 2 3" for number, word in enumerate(has)]
    path = tmp_path_factory.mktemp("words") / "vectors.txt"
    path.write_text("\n".join(["notinthetexts 1 2 3 4", *rows]) + "\n")
    return path, has


@pytest.mark.parametrize("use", ["start", "filter", "both"])
def test_word_vectors_say_which_words_there_are_and_how_they_start(use, vectors, recipes, trained, corpus, tmp_path):
    path, has = vectors
    recipe = recipes(RECIPE, f"text.vectors={path}", f"text.use={use}", "stage.1.epochs=1")
    run, watcher = trained(recipe, tmp_path / "run")
    words = Vocabulary.load(run / "vocabulary.json").words
    every = Vocabulary.count(corpus.split("train").texts, 1).words
    assert list(words) == (list(every) if use == "start" else has)
    began = watcher.firsts[1]["model.text.words.weight"]
    assert len(began) == 4 + len(words)
    rows = began[[4 + words.index(word) for word in has]]
    given = torch.tensor([[float(number), 1, 2, 3] for number in range(len(has))])
    assert torch.equal(rows, given) == (use != "filter")
    if use == "filter":
        assert rows.abs().max() <= 0.1
    assert f"word vectors: {len(has)} of {len(every)} words found" in watcher.said
    opened = Trained.open(run, "cpu")
    assert opened.matcher.settings.words == 4 + len(words)


@pytest.mark.parametrize("use", ["filter", "both"])
def test_a_filtered_run_that_was_stopped_goes_on_bit_for_bit(use, vectors, recipes, trained, corpus, stores, tmp_path):
    path = shutil.copy(vectors[0], tmp_path / "vectors.txt")
    recipe = recipes(RECIPE, f"text.vectors={path}", f"text.use={use}")
    whole, _ = trained(recipe, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path / "cut", device="cpu", watcher=Watched(stops=(2,)), features=stores)
    path.unlink()  # what has begun has its words
    train(recipe, corpus, tmp_path / "cut", resume=True, device="cpu", features=stores)
    for name in ("best/weights.safetensors", "last/snapshot.safetensors"):
        assert (whole / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


@pytest.mark.parametrize("use", ["filter", "both"])
def test_a_filter_without_vectors_is_refused(use, recipes, refused):
    message = rf"^text\.use = '{use}': a file of vectors says which words there are; set text\.vectors$"
    refused(RecipeError, message, recipes(RECIPE, f"text.use={use}"))


def test_a_filter_that_leaves_no_word_is_refused(recipes, refused, tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("xyzzy 1 2 3 4\n")
    recipe = recipes(RECIPE, f"text.vectors={path}", "text.use=both")
    refused(DataError, rf"{path.name}.*none of the training words", recipe)


def test_the_classifier_is_in_the_snapshot_with_its_momentum(both):
    snapshot = Snapshot.read(both[0])
    assert snapshot.classes.count == GROUPS
    assert snapshot.tensors["optimiser.objective.classifier.momentum_buffer"].abs().max() > 0
    assert snapshot.position.errors == {}  # an epoch has ended


def test_neighbours_go_with_it(recipes, trained, tmp_path):
    run, _ = trained(recipes(RECIPE, "stage.1.epochs=1", "stage.1.batches.neighbours=true"), tmp_path / "run")
    assert epochs_of(run)[0]["class_error"].keys() == {"visual", "textual"}


def test_the_text_cnn_of_the_second_stage_shifts_too(recipes, trained, tmp_path, monkeypatch):
    begins = []

    def watched(self, count):
        made = begin(self, count)
        begins.append((self.training, made.tolist()))
        return made

    begin = cnn.TextCNN._begins
    monkeypatch.setattr(cnn.TextCNN, "_begins", watched)
    trained(recipes(RECIPE + SECOND, "stage.1.epochs=1", "stage.2.epochs=1"), tmp_path / "run")
    steps = [set(places) for training, places in begins if training]
    assert len(steps) == 2 * STEPS
    assert any(len(places) > 1 for places in steps[:STEPS])
    assert any(len(places) > 1 for places in steps[STEPS:])
