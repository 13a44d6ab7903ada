"""The recipes of the AOQ paper against its Tables 1 to 5 and section 4.2, which are typed in here once more."""

from typing import NamedTuple

import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RunError
from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe_catalogue import recipe_names
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

COCO, COCO_5K, FLICKR = "COCO, 1K test images", "COCO, 5K test images", "Flickr30K"
PAPER = "Chen et al. 2020, AOQ"

# R@1, R@5, R@10: image to text (sentence retrieval), text to image (image retrieval)
PUBLISHED = {
    "1.1": (COCO, (72.7, 94.8, 98.4), (58.8, 88.4, 94.8)),
    "1.2": (COCO, (73.1, 94.8, 98.2), (59.3, 88.3, 94.8)),
    "1.3": (COCO, (73.6, 95.0, 98.4), (59.6, 88.6, 95.0)),
    "1.4": (COCO, (74.1, 95.2, 98.5), (59.8, 88.6, 95.0)),
    "1.5": (COCO, (74.9, 95.2, 98.3), (59.4, 88.4, 94.5)),
    "1.6": (COCO, (75.8, 95.6, 98.4), (60.1, 88.8, 94.7)),
    "1.7": (COCO, (76.3, 95.7, 98.4), (60.5, 89.0, 94.8)),
    "1.8": (COCO, (77.3, 96.0, 98.5), (61.2, 89.2, 95.0)),
    "1.9": (COCO, (76.2, 94.8, 98.2), (62.8, 89.7, 95.1)),
    "1.10": (COCO, (76.8, 95.2, 98.4), (63.1, 89.9, 95.2)),
    "1.11": (COCO, (76.9, 95.3, 98.4), (63.3, 90.2, 95.5)),
    "1.12, 5.2": (COCO, (77.5, 95.5, 98.6), (63.5, 90.5, 95.8)),
    "1.13": (COCO_5K, (50.4, 82.2, 90.0), (38.6, 69.3, 80.4)),
    "1.14": (COCO_5K, (51.2, 82.5, 90.1), (39.4, 69.7, 80.4)),
    "1.15": (COCO_5K, (52.9, 82.8, 90.6), (38.3, 67.8, 79.3)),
    "1.16": (COCO_5K, (57.3, 84.5, 91.7), (40.1, 69.2, 80.1)),
    "1.17": (COCO_5K, (53.0, 81.1, 89.4), (40.5, 70.6, 81.1)),
    "1.18": (COCO_5K, (55.1, 83.3, 90.8), (41.1, 71.5, 82.0)),
    "2.1": (FLICKR, (67.4, 90.3, 95.8), (48.6, 77.7, 85.2)),
    "2.2": (FLICKR, (70.3, 92.0, 95.5), (50.0, 79.2, 86.2)),
    "2.3": (FLICKR, (68.1, 91.4, 95.9), (50.8, 78.4, 85.8)),
    "2.4": (FLICKR, (73.2, 94.5, 97.0), (54.0, 80.3, 87.7)),
    "2.5": (FLICKR, (71.3, 90.6, 96.0), (54.7, 81.8, 88.2)),
    "2.6": (FLICKR, (72.8, 91.8, 95.8), (55.3, 82.2, 88.4)),
    "3.1": (COCO, (1.1, 2.5, 4.9), (0.5, 1.4, 2.6)),
    "3.2": (COCO, (0.7, 2.1, 3.8), (0.4, 1.2, 2.3)),
    "3.3": (COCO, (74.3, 94.7, 98.2), (58.7, 88.1, 94.2)),
    "3.4": (COCO, (74.5, 94.3, 98.1), (62.0, 89.3, 94.8)),
    "3.5": (COCO, (75.3, 95.8, 98.5), (59.8, 88.6, 94.6)),
    "3.6": (COCO, (76.4, 94.9, 98.2), (62.8, 89.9, 95.2)),
    "3.7": (COCO, (76.6, 95.8, 98.4), (60.8, 89.1, 94.8)),
    "3.8": (COCO, (77.1, 95.4, 98.4), (63.4, 90.2, 95.5)),
    "3.9": (COCO, (77.1, 95.3, 98.4), (63.3, 90.4, 95.6)),
    "3.10": (COCO, (77.4, 95.6, 98.6), (63.5, 90.4, 95.7)),
    "3.11": (COCO, (77.3, 95.4, 98.6), (63.3, 90.3, 95.6)),
    "4.1": (COCO, (75.7, 95.0, 98.3), (62.4, 89.7, 95.2)),
    "5.1": (COCO, (77.1, 95.3, 98.7), (63.8, 90.6, 95.8)),
    "5.3": (COCO, (77.5, 95.5, 98.5), (63.3, 90.3, 95.6)),
    "5.4": (COCO, (77.0, 95.2, 98.5), (63.2, 90.1, 95.5)),
    "5.5": (COCO, (77.4, 95.4, 98.7), (63.3, 90.3, 95.7)),
}

# Who makes a row together: all of the paper's figures are those of two models whose scores are averaged.
ENSEMBLES = {
    "1.1": ("scan-t2i-mean-coco", "scan-i2t-coco"),
    "1.2": ("scan-t2i-mean-coco-offtri", "scan-i2t-coco-offtri"),
    "1.3": ("scan-t2i-mean-coco-offquin", "scan-i2t-coco-offquin"),
    "1.4": ("scan-t2i-mean-coco-aoq", "scan-i2t-coco-aoq"),
    "1.5": ("bfan-equal-coco", "bfan-prob-coco"),
    "1.6": ("bfan-equal-coco-offtri", "bfan-prob-coco-offtri"),
    "1.7": ("bfan-equal-coco-offquin", "bfan-prob-coco-offquin"),
    "1.8": ("bfan-equal-coco-aoq", "bfan-prob-coco-aoq"),
    "1.9": ("vsrn-coco",),
    "1.10": ("vsrn-coco-offtri",),
    "1.11": ("vsrn-coco-offquin",),
    "1.12, 5.2": ("vsrn-coco-aoq",),
    "1.13": ("scan-t2i-mean-coco", "scan-i2t-coco"),
    "1.14": ("scan-t2i-mean-coco-aoq", "scan-i2t-coco-aoq"),
    "1.15": ("bfan-equal-coco", "bfan-prob-coco"),
    "1.16": ("bfan-equal-coco-aoq", "bfan-prob-coco-aoq"),
    "1.17": ("vsrn-coco",),
    "1.18": ("vsrn-coco-aoq",),
    "2.1": ("scan-t2i-mean", "scan-i2t"),
    "2.2": ("scan-t2i-mean-aoq", "scan-i2t-aoq"),
    "2.3": ("bfan-equal", "bfan-prob"),
    "2.4": ("bfan-equal-aoq", "bfan-prob-aoq"),
    "2.5": ("vsrn",),
    "2.6": ("vsrn-aoq",),
    "3.1": ("bfan-equal-coco-onlyoffline", "bfan-prob-coco-onlyoffline"),
    "3.2": ("vsrn-coco-onlyoffline",),
    "3.3": ("bfan-equal-coco-finetune", "bfan-prob-coco-finetune"),
    "3.4": ("vsrn-coco-finetune",),
    "3.5": ("bfan-equal-coco-onlinequin", "bfan-prob-coco-onlinequin"),
    "3.6": ("vsrn-coco-onlinequin",),
    "3.7": ("bfan-equal-coco-without-offlineadap", "bfan-prob-coco-without-offlineadap"),
    "3.8": ("vsrn-coco-without-offlineadap",),
    "3.9": ("vsrn-coco-h200",),
    "3.10": ("vsrn-coco-h500",),
    "3.11": ("vsrn-coco-h1000",),
    "4.1": ("vsrn-coco-batch192",),
    "5.1": ("vsrn-coco-alpha02",),
    "5.3": ("vsrn-coco-alpha05",),
    "5.4": ("vsrn-coco-beta10",),
    "5.5": ("vsrn-coco-beta20",),
}

# Variants that no row of the paper has.
OTHERS = {"scan-t2i", "scan-t2i-coco", "scan-i2t-mean", "vsrn-offtri", "vsrn-offquin"}
OTHERS |= {f"scan-{direction}-{second}" for direction in ("t2i", "i2t") for second in ("offtri", "offquin", "aoq")}
OTHERS -= {"scan-i2t-aoq"}
OTHERS |= {f"scan-t2i-mean-{second}" for second in ("offtri", "offquin")}
ABLATIONS = ("offtri", "offquin", "onlyoffline", "onlinequin", "without-offlineadap")  # of BFAN, of COCO in the paper
OTHERS |= {f"bfan-{focal}-{second}" for focal in ("equal", "prob") for second in ABLATIONS}

NAMES = [name for name in recipe_names() if name.startswith(("scan", "bfan", "vsrn")) and not name.endswith("-small")]

# Settings by the start of a recipe's name, the longest that fits.
MODELS = {
    "scan-t2i": {"name": "scan", "direction": "t2i", "smooth": 9, "pool": "lse", "lse": 6},
    "scan-t2i-mean": {"name": "scan", "direction": "t2i", "smooth": 9, "pool": "mean"},
    "scan-i2t": {"name": "scan", "direction": "i2t", "smooth": 4, "pool": "lse", "lse": 5},
    "scan-i2t-coco": {"name": "scan", "direction": "i2t", "smooth": 4, "pool": "lse", "lse": 20},
    "scan-i2t-mean": {"name": "scan", "direction": "i2t", "smooth": 4, "pool": "mean"},
    "bfan-equal": {"name": "bfan", "focal": "equal", "smooth": 20},
    "bfan-prob": {"name": "bfan", "focal": "prob", "smooth": 20},
    "vsrn": {"name": "vsrn", "blocks": 4},
}
PARTS = {
    "scan": {"project", "text"},
    "bfan": {"project", "text"},
    "vsrn": {"project", "reason", "gather", "text", "captioner"},
}


class Rates(NamedTuple):
    """A rate for some epochs, then a tenth of it for some more."""

    rate: float
    epochs: int
    lower: int


# The first round: VSRN's is of section 4.2, those of SCAN and BFAN are of their public code.
FIRST = {
    "scan": {"flickr": Rates(0.0002, 15, 15), "coco": Rates(0.0005, 10, 10)},
    "bfan": {"flickr": Rates(0.0002, 15, 0), "coco": Rates(0.0005, 15, 5)},
    "vsrn": {"flickr": Rates(0.0002, 10, 10), "coco": Rates(0.0002, 15, 15)},
}
SECOND = {"scan": Rates(0.0005, 10, 5), "bfan": Rates(0.0005, 10, 5), "vsrn": Rates(0.0002, 10, 10)}

FINAL = {
    "name": "quintuplet",
    "margin": 0.2,
    "offline_margin": 0,
    "online": True,
    "derived": "offline",
    "adaptive": "offline",
    "alpha": 0.3,
    "beta": 1.5,
    "squared": False,
    "offline_ramp": None,
}
# What the end of a name promises: how the objective differs from Eq. 5 with its final numbers.
OBJECTIVES = {
    "aoq": {},
    "offtri": {"derived": "none", "adaptive": "none"},
    "offquin": {"adaptive": "none"},
    "onlyoffline": {"online": False, "adaptive": "none"},
    "finetune": {},
    "onlinequin": {"derived": "online", "adaptive": "none"},
    "offlineadap": {"adaptive": "positive"},
    "h200": {},
    "h500": {},
    "h1000": {},
    "alpha02": {"alpha": 0.2},
    "alpha05": {"alpha": 0.5},
    "beta10": {"beta": 1.0},
    "beta20": {"beta": 2.0},
}
LISTS = {"h200": (200, 40), "h500": (500, 100), "h1000": (1000, 200)}


def test_every_row_has_its_recipes_and_says_whose_scores_it_averages():
    found = {}
    for name in recipe_names():
        paper = load_recipe(name).paper
        for row in paper.row if paper else ():
            if (row.reference or paper.reference) == PAPER:
                found[name, row.number] = (row.data, row.i2t, row.t2i)
    expected = {}
    for number, names in ENSEMBLES.items():
        members = " and ".join(names) if len(names) == 2 else "two runs"
        expected |= {(name, f"{number}, ensemble of {members}"): PUBLISHED[number] for name in names}
    assert found == expected
    assert ENSEMBLES.keys() == PUBLISHED.keys()
    assert sorted(NAMES) == sorted(OTHERS.union(*ENSEMBLES.values()))


@pytest.mark.parametrize("name", NAMES)
def test_the_model(name):
    recipe, host = load_recipe(name), name.split("-")[0]
    model = recipe.model
    expected = MODELS[max((start for start in MODELS if f"{name}-".startswith(f"{start}-")), key=len)]
    assert {key: getattr(model, key) for key in expected} == expected
    assert (model.joint, model.text.word) == (2048 if host == "vsrn" else 1024, 300)
    assert (model.image.name, model.image.backbone) == ("backbone", "lite0")
    assert (recipe.text.threshold, recipe.text.vectors, recipe.seed) == (4, None, 0)
    if host == "vsrn":
        assert (model.text.name, model.text.hidden, model.normalise_regions) == ("gru", 2048, True)
        assert model.generation.model_dump() == {"weight": 1, "hidden": 512, "word": 300, "dropout": 0.2}
    if host == "scan":
        assert model.norm == "clipped_l2norm"


@pytest.mark.parametrize("name", NAMES)
def test_the_rounds(name):
    recipe, (host, *rest) = load_recipe(name), name.split("-")
    variant = rest[-1] if rest and rest[-1] in OBJECTIVES else None
    assert recipe.paper.reference.startswith("Chen") == bool(variant or "batch192" in rest)
    rounds = [FIRST[host]["coco" if "coco" in rest else "flickr"]]
    if variant:
        rounds = [*rounds, SECOND[host]] if host == "vsrn" or variant == "finetune" else [SECOND[host]]
    assert len(recipe.stage) == len(rounds)
    for stage, rates in zip(recipe.stage, rounds, strict=True):
        assert stage.epochs == rates.epochs + rates.lower
        shares = [
            stage.schedule.share(epoch + part, stage.epochs) for part in (0, 0.99) for epoch in range(stage.epochs)
        ]
        found = [stage.optimiser.rate * share for share in shares]
        assert found == pytest.approx(2 * ([rates.rate] * rates.epochs + [rates.rate / 10] * rates.lower))
        assert (stage.optimiser.name, stage.optimiser.clip, stage.optimiser.parts) == ("adam", 2, {})
        assert stage.batches.size == (192 if name == "vsrn-coco-batch192" else 128)
        assert set(stage.trainable) == PARTS[host]
        splits = ("train", "restval") if "coco" in rest else ("train",)  # section 4.1: 113,283 training images of COCO
        assert (stage.splits, stage.crops, stage.select, stage.patience) == (splits, None, "rsum", None)
    for stage in recipe.stage[: -1 if variant else None]:
        objective = {"name": "hinge", "negatives": "max", "margin": 0.2}
        assert (stage.start, stage.offline) == ("scratch", None)
        assert {key: getattr(stage.objective, key) for key in objective} == objective
    if variant:
        assert_second(recipe.stage[-1], host, variant, "coco" in rest)


def assert_second(stage, host, variant, coco):
    """The second round: from scratch with negatives of VSRN's lists."""
    assert stage.start == ("previous" if variant == "finetune" else "scratch")
    assert stage.objective.model_dump() == {**FINAL, **OBJECTIVES[variant]}
    teacher = "previous" if host == "vsrn" else "runs/vsrn-coco" if coco else "runs/vsrn"
    offline = stage.offline
    assert (offline.lists, offline.draw, offline.single_draw) == (teacher, "uniform", False)
    assert (offline.top_texts, offline.top_images) == LISTS.get(variant, (300, 60))


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_train_everything_on_stored_regions(name):
    assert frozen_parts(load_recipe(name), (36, 2048)) == set()


@pytest.mark.parametrize("name", ["scan-t2i", "bfan-equal", "vsrn-aoq"])
def test_the_stages_train_everything_but_the_backbone_on_pictures(name):
    assert frozen_parts(load_recipe(name), None) == {"image"}


def frozen_parts(recipe, features):
    """The parts of a model without memory that stay as they are in some stage."""
    with torch.device("meta"):
        matcher = recipe.model.for_data(100, features).build()
    frozen = set()
    for stage in recipe.stage:
        set_trainable(matcher, stage.trainable)
        frozen |= {part.split(".")[0] for part, weights in matcher.named_parameters() if not weights.requires_grad}
    return frozen


def test_a_teacher_that_was_never_trained_is_missed_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"^runs/vsrn: no such run; .*`diptych mine runs/vsrn DATA`$"):
        train("bfan-equal-aoq", make_scenes(train=6, val=2, test=1, texts=2), "runs/bfan-equal-aoq")
    assert not list(tmp_path.iterdir())
