"""The recipes of the two-branch paper against its Tables 1 to 5 and sections 4.2, 4.3, 5.2 and 5.3, typed in once more.

Each is trained on a few scenes, too, with the smallest model: the backbone has one weight, and regions are proposed
without looking at the photo.
"""

import json

import numpy as np
import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.runs import evaluate
from diptych.model import Model
from diptych.report.run_evaluator import RunEvaluator
from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback

PAPER = "Wang, Li, Lazebnik 2018, two-branch networks"
KLEIN, PLUMMER = "Klein et al. 2015", "Plummer et al. 2015"  # references 2 and 12 of the paper
NAMES = [name for name in catalogue().all_names() if name.startswith(("two-branch", "similarity", "cca"))]
REGIONS = 24  # a photo: all things of the scenes below, and one more that is not there
OF_PAPER = [name for name in NAMES if not name.endswith("-small")]
REPORTED = [f"{model}{of}-small" for model in ("two-branch", "similarity", "cca") for of in ("", "-phrases")]

# Phrase localisation, R@1, R@5, R@10
TABLE_1B = {
    "two-branch-phrases-linear": (39.60, 64.30, 71.00),
    "two-branch-phrases-one": (43.15, 65.78, 71.64),
    "two-branch-phrases-both": (44.53, 67.46, 73.12),
    "two-branch-phrases-augmented": (49.09, 69.46, 74.80),
    "two-branch-phrases-sampling": (51.03, 70.26, 75.25),
    "two-branch-phrases": (50.69, 70.42, 75.51),
}
TABLE_1C = {
    "similarity-phrases-linear-single": (43.19, 65.45, 70.88),
    "similarity-phrases-single": (45.19, 67.14, 72.13),
    "similarity-phrases-linear": (48.30, 68.97, 74.08),
    "similarity-phrases": (51.05, 70.30, 75.04),
}
# Image to sentence, sentence to image
TABLE_2A = [
    ("cca-mean", KLEIN, (24.8, 52.5, 64.3), (20.5, 46.3, 59.3)),
    ("cca", KLEIN, (34.4, 61.0, 72.3), (24.4, 52.1, 65.6)),
    ("cca", PLUMMER, (36.5, 62.2, 73.3), (24.7, 53.4, 66.8)),
]
TABLE_2B = {
    "two-branch-linear-one": ((33.5, 61.7, 73.6), (21.0, 47.4, 60.5)),
    "two-branch-linear": ((34.6, 64.3, 74.9), (24.2, 52.0, 64.2)),
    "two-branch-one": ((37.5, 65.6, 76.9), (22.4, 50.9, 63.3)),
    "two-branch-both": ((39.0, 67.0, 77.6), (27.2, 57.0, 69.2)),
    "two-branch-sampling": ((40.5, 68.8, 78.7), (28.9, 59.0, 71.3)),
    "two-branch": ((40.7, 69.7, 79.2), (29.2, 59.6, 71.7)),
}
TABLE_2C = {"similarity": ((15.2, 39.7, 46.2), (11.0, 29.2, 41.6))}
TABLE_3A = [
    ("cca-mean-coco", KLEIN, (33.2, 61.8, 75.1), (24.2, 56.4, 72.4)),
    ("cca-coco", KLEIN, (37.7, 66.6, 79.1), (24.9, 58.8, 76.5)),
]
TABLE_3B = {
    "two-branch-both-coco": ((47.5, 77.6, 88.3), (36.8, 72.2, 85.6)),
    "two-branch-sampling-coco": ((50.1, 79.4, 89.7), (39.6, 75.1, 86.8)),
    "two-branch-coco": ((50.4, 79.3, 89.4), (39.8, 75.3, 86.6)),
}
TABLE_3C = {"similarity-coco": ((29.5, 47.2, 69.4), (14.8, 32.7, 57.6))}
# Sentence to sentence
TABLE_4 = {
    "Flickr30K": {
        "two-branch-both": (57.7, 79.5, 86.6),
        "two-branch-sampling": (60.0, 81.2, 88.1),
        "two-branch": (61.2, 82.3, 89.2),
    },
    "COCO 1K": {
        "two-branch-both-coco": (52.5, 77.4, 86.0),
        "two-branch-sampling-coco": (53.5, 77.6, 86.8),
        "two-branch-coco": (54.1, 78.5, 87.4),
    },
}
TABLE_5 = {"two-branch": ((40.8, 70.4, 79.5), (29.4, 60.2, 72.1))}  # the weighted distance

# lambda 1 to 4 of Eq. 6: the terms image to text, text to image, image to image, text to text
SENTENCES = {
    "one": (0, 1, 0, 0),
    "both": (1, 2, 0, 0),
    "linear-one": (0, 1, 0, 0),
    "linear": (1, 2, 0, 0),
    "sampling": (1, 2, 0, 0),
    "": (1, 2, 0, 0.2),
}
PHRASES = {
    "linear": (0, 1, 0, 0),
    "one": (0, 1, 0, 0),
    "both": (1, 4, 0, 0),
    "augmented": (1, 4, 0, 0),
    "sampling": (1, 4, 0, 0),
    "": (1, 4, 0, 0),  # and 1, 4, 0.1, 0.1 in a second stage
}
POSITIVES = {"linear": "annotated", "one": "annotated", "both": "annotated"}  # the others: one of those that overlap


def published():
    """Every row: recipe, table, whose, data, and figures of image to text, text to image, text to text, phrases."""
    for table, rows in (("1b", TABLE_1B), ("1c", TABLE_1C)):
        for name, figures in rows.items():
            yield name, table, None, "Flickr30K Entities", None, None, None, figures
    for table, data, rows in (
        ("2b", "Flickr30K", TABLE_2B),
        ("2c", "Flickr30K", TABLE_2C),
        ("3b", "COCO 1K", TABLE_3B),
        ("3c", "COCO 1K", TABLE_3C),
        ("5", "Flickr30K", TABLE_5),
    ):
        for name, both in rows.items():
            yield name, table, None, data, *both, None, None
    for table, data, rows in (("2a", "Flickr30K", TABLE_2A), ("3a", "COCO 1K", TABLE_3A)):
        for name, whose, *both in rows:
            yield name, table, whose, data, *both, None, None
    for data, rows in TABLE_4.items():
        for name, figures in rows.items():
            yield name, "4", None, data, None, None, figures, None


def test_every_row_of_the_tables_is_in_its_recipe():
    found, numbers = [], []
    for name in NAMES:
        paper = load_recipe(name).paper
        assert paper.reference == PAPER
        for row in paper.row:
            figures = row.i2t, row.t2i, row.t2t, row.phrases
            found.append((name, row.number.split(",")[0], row.reference, row.data, *figures))
            numbers.append(row.number)
    assert sorted(found, key=str) == sorted(published(), key=str)
    assert len(set(numbers)) == len(numbers)
    assert {each[0] for each in found} == set(OF_PAPER) - {"cca-phrases"}  # whose row of Table 1 is another model's


def variant(name):
    """The model, whether it is of phrases, and what is left of the name without the data: the row of the ablation."""
    name = name.removesuffix("-coco")
    kind = next(kind for kind in ("two-branch", "similarity", "cca") if name.startswith(kind))
    rest = name.removeprefix(kind).removeprefix("-")
    phrases = rest.startswith("phrases")
    return kind, phrases, rest.removeprefix("phrases").removeprefix("-") if phrases else rest


@pytest.mark.parametrize("name", OF_PAPER)
def test_the_model(name):
    kind, phrases, rest = variant(name)
    recipe = load_recipe(name)
    model, image = recipe.model, recipe.model.image
    assert model.name == {"two-branch": "two_branch", "similarity": "similarity_net", "cca": "cca"}[kind]
    assert (recipe.text.threshold, recipe.text.vectors, recipe.seed) == (1, None, 0)
    if name.startswith("cca-mean"):
        assert (model.text.name, model.text.word) == ("mean", 300)
    else:
        text = {"name": "fisher", "word": 300, "mixture": "hglmm", "centres": 30, "ica": True, "size": 6000}
        assert {key: getattr(model.text, key) for key in text} == text
    if phrases:
        assert (image.name, image.backbone, image.regions.count) == ("regions", "vgg16", 200)
    else:
        assert (image.name, image.backbone, image.crops, image.normalise) == ("backbone", "vgg19", "10C", False)
    if kind != "cca":
        layers = (1024, 512) if phrases else (2048, 512)
        linear = rest.startswith("linear")
        assert model.image_layers == model.text_layers == (layers[:1] if linear else layers)
        assert (model.batch_norm, model.dropout) == (not linear, 0 if phrases else 0.5)
    if kind == "similarity":
        assert model.fused == (512, 256)  # and the third layer, 256 x 1


@pytest.mark.parametrize("name", [name for name in OF_PAPER if name.startswith("two-branch")])
def test_the_objective_of_the_embedding_network(name):
    _, phrases, rest = variant(name)
    stages = load_recipe(name).stage
    weights = [(PHRASES if phrases else SENTENCES)[rest]]
    if name == "two-branch-phrases":
        weights.append((1, 4, 0.1, 0.1))
    assert len(stages) == len(weights)
    for stage, expected in zip(stages, weights, strict=True):
        loss = stage.objective
        assert (loss.name, loss.margin, loss.most) == ("neighbourhood", 0.1, 30 if phrases else 50)
        assert (loss.image_to_text, loss.text_to_image, loss.image_to_image, loss.text_to_text) == expected
        assert stage.batches.neighbours == (rest in ("sampling", ""))
        assert stage.batches.rivals == 0
        if phrases:
            assert stage.phrases.model_dump() == {
                "positives": POSITIVES.get(rest, "one"),
                "alike": 0.7,
                "apart": 0.3,
                "rivals": None,
            }
        else:
            assert stage.phrases is None


@pytest.mark.parametrize("name", [name for name in OF_PAPER if name.startswith("similarity")])
def test_the_objective_of_the_similarity_network(name):
    _, phrases, rest = variant(name)
    (stage,) = load_recipe(name).stage
    assert stage.objective.model_dump() == {"name": "logistic", "balanced": True}
    assert not stage.batches.neighbours
    if phrases:
        positives = "annotated" if rest.endswith("single") else "all"
        assert stage.phrases.model_dump() == {"positives": positives, "alike": 0.7, "apart": 0.3, "rivals": 1}
    else:
        assert (stage.phrases, stage.batches.rivals) == (None, 1)


@pytest.mark.parametrize("name", [name for name in OF_PAPER if not name.startswith("cca")])
def test_the_training(name):
    _, phrases, _ = variant(name)
    stages = load_recipe(name).stage
    assert [stage.start for stage in stages] == ["scratch", "previous"][: len(stages)]
    assert [stage.epochs for stage in stages] == ([8, 1] if phrases else [30])[: len(stages)]
    for stage in stages:
        optimiser = stage.optimiser
        assert (optimiser.clip, optimiser.parts) == (0, {})
        assert stage.batches.size == (100 if phrases else 1500)
        assert stage.select == ("phrase_sum" if phrases else "rsum")
        shares = [stage.schedule.share(epoch, stage.epochs) for epoch in range(stage.epochs)]
        if phrases:
            assert (optimiser.name, optimiser.rate, optimiser.decay) == ("adam", 0.001, 0.005)
            assert shares == [1] * stage.epochs
        else:
            assert (optimiser.name, optimiser.rate, optimiser.decay) == ("sgd", 0.1, 0.0005)
            assert optimiser.momentum == 0.9
            assert shares == pytest.approx([1] * 10 + [0.1] * 10 + [0.01] * 10)


@pytest.mark.parametrize("name", OF_PAPER)
def test_the_images_of_coco_are_train_and_restval(name):
    """Section 5.2: 113,287 images of COCO to train on; nothing else is different there."""
    expected = ("train", "restval") if name.endswith("-coco") else ("train",)
    recipe = load_recipe(name)
    assert {stage.splits for stage in recipe.stage} == {expected}
    if name.endswith("-coco"):
        assert load_recipe(name, ["stage.1.splits=['train']"]).trains_like(load_recipe(name.removesuffix("-coco")))
        assert load_recipe(f"{name}-small").trains_like(load_recipe(f"{name.removesuffix('-coco')}-small"))


@pytest.mark.parametrize("name", OF_PAPER)
def test_a_small_version_asks_the_same_of_a_smaller_model(name):
    recipe, small = load_recipe(name), load_recipe(f"{name}-small")
    assert (small.model.name, small.paper.row) == (recipe.model.name, ())
    if not name.startswith("cca"):
        for key in ("image_layers", "text_layers"):
            assert len(getattr(small.model, key)) == len(getattr(recipe.model, key))
        assert (small.model.dropout, small.model.batch_norm) == (recipe.model.dropout, recipe.model.batch_norm)
    for stage, other in zip(recipe.stage, small.stage, strict=True):
        assert other.objective == stage.objective
        assert (other.batches, other.trainable, other.start) == (stage.batches, stage.trainable, stage.start)
        if stage.phrases is not None:
            assert other.phrases.model_copy(update={"rivals": stage.phrases.rivals}) == stage.phrases


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_train_everything_but_the_towers(name):
    recipe = load_recipe(name)
    with torch.device("meta"):
        matcher = recipe.model.for_data(100, None).build()
    for stage in recipe.stage:
        set_trainable(matcher, stage.trainable)
        frozen = {part.split(".")[0] for part, weights in matcher.named_parameters() if not weights.requires_grad}
        assert frozen == {"image"}


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=6, val=2, test=2, texts=2)


@pytest.fixture(scope="module", autouse=True)
def tiny_backbone(corpus, small_regions):
    with small_regions(corpus):
        yield


@pytest.fixture(scope="module")
def stores(corpus, write_vectors, tmp_path_factory):
    """The features of all recipes, and in `vectors.txt` a vector of most words."""
    folder = tmp_path_factory.mktemp("features")
    write_vectors([*corpus.texts, *(phrase.text for some in corpus.phrases for phrase in some)], folder / "vectors.txt")
    return folder


def tiny(name, stores):
    """The recipe with the smallest model, an epoch a stage."""
    recipe = load_recipe(name)
    model = recipe.model
    changes = ["model.image.side=64"]
    if model.image.name == "regions":
        changes.append(f"model.image.regions.count={REGIONS}")
    if model.text.name != "tfidf":
        changes += [f"text.vectors={str(stores / 'vectors.txt')!r}", "model.text.word=4"]
    if model.text.name == "fisher":
        changes += ["model.text.centres=2", "model.text.size=4", "model.text.iterations=3"]
    if model.name == "cca":
        changes.append("model.joint=4")
    else:
        layers = [8, 4][: len(model.image_layers)]
        changes += [f"model.image_layers={layers}", f"model.text_layers={layers}"]
    if model.name == "similarity_net":
        changes.append("model.fused=[4, 2]")
    for number in range(1, len(recipe.stage) + 1):
        changes += [f"stage.{number}.epochs=1", f"stage.{number}.batches.size=8"]
    return load_recipe(name, changes)


@pytest.mark.parametrize("name", [*(name for name in NAMES if "-coco" not in name), "phrases-scenes"])
def test_every_recipe_trains_on_scenes(name, corpus, stores, tmp_path):
    recipe = tiny(name, stores)
    run = train(recipe, corpus, tmp_path, device="cpu", workers=0, features=stores)
    epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in epochs if line["event"] == "epoch"] == list(range(1, len(recipe.stage) + 1))
    assert all(np.isfinite(line["loss"]) for line in epochs if line["event"] == "epoch")
    trained = Model.load(run, "cpu", stores=stores)
    if name in REPORTED:
        RunEvaluator(corpus).write_report(run, trained)  # as the command does
        assert (run / "report.html").is_file()
    if recipe.stage[-1].phrases is None:
        assert evaluate(trained, corpus).images == 2
    else:
        found = evaluate_phrases(trained, corpus, workers=0)
        assert len(found) == sum(map(len, corpus.split("test").phrases))
        assert found.metrics["ceiling"] == 100


def test_control_c_ends_the_fit_of_a_text_tower(corpus, stores, tmp_path):
    callback, folder = RecordingCallback(preparation="text tower"), tmp_path / "features"
    with pytest.raises(KeyboardInterrupt):
        train(tiny("cca-small", stores), corpus, tmp_path / "run", device="cpu", callbacks=[callback], features=folder)
    assert [what for what, *_ in callback.preparations] == ["text tower"]  # at once, not when all was done
    assert not (folder / "texts").exists()
    assert not (tmp_path / "run" / "recipe.toml").exists()
