"""The recipes of the dual-path paper against its Tables I to VIII and sections III, V and VI-B, typed in once more."""

import pytest

from diptych.features.crops import resized_side
from diptych.models.towers.text import cnn
from diptych.training.recipe_catalogue import catalogue
from diptych.training.recipe_loader import load_recipe

PAPER = "Zheng et al. 2020, dual-path CNN with instance loss"
NAMES = [name for name in catalogue().all_names() if name.startswith("dual-path")]
SMALL = [name for name in NAMES if name.endswith("-small")]
OF_PAPER = [name for name in NAMES if name not in SMALL and name != "dual-path-public"]
PERSONS = [name for name in NAMES if "-pedes" in name]

# Image query, text query: R@1, R@5, R@10 and the median rank
TABLE_I = {
    "dual-path-vgg19-stage1": ((37.5, 66.0, 75.6, 3), (27.2, 55.4, 67.6, 4)),
    "dual-path-vgg19": ((47.6, 77.3, 87.1, 2), (35.3, 66.6, 78.2, 3)),
    "dual-path-stage1": ((41.2, 69.7, 78.9, 2), (28.6, 56.2, 67.8, 4)),
    "dual-path": ((53.9, 80.9, 89.9, 1), (39.2, 69.8, 80.8, 2)),
    "dual-path-resnet152-stage1": ((44.2, 70.2, 79.7, 2), (30.7, 59.2, 70.8, 4)),
    "dual-path-resnet152": ((55.6, 81.9, 89.5, 1), (39.1, 69.2, 80.9, 2)),
}
# R@1 and R@10 of both
TABLE_II = {
    "dual-path-ranking-stage1": (6.1, 27.3, 4.9, 27.8),
    "dual-path-stage1": (39.9, 79.1, 28.2, 67.9),
    "dual-path-instance": (50.5, 86.0, 34.9, 75.7),
    "dual-path-ranking": (47.5, 85.4, 29.0, 68.7),
    "dual-path": (55.4, 89.3, 39.7, 80.8),
}
TABLE_V = {
    "dual-path-random-words-stage1": (38.0, 78.7, 26.6, 66.6),
    "dual-path-stage1": (39.9, 79.1, 28.2, 67.9),
}
TABLE_VI = {
    "dual-path-left-stage1": (34.1, 73.1, 23.6, 61.4),
    "dual-path-stage1": (39.9, 79.1, 28.2, 67.9),
}
# R@1 of both
TABLE_III = {
    "Flickr30K": {"dual-path-resnet152-text50-stage1": (44.4, 29.6), "dual-path-resnet152-stage1": (44.2, 30.7)},
    "COCO 1K": {
        "dual-path-coco-resnet152-text50-stage1": (52.0, 38.0),
        "dual-path-coco-resnet152-stage1": (52.8, 37.7),
    },
}
TABLE_IV = {
    "dual-path-coco-3000-classes-stage1": (38.0, 26.1),
    "dual-path-coco-10000-classes-stage1": (44.7, 31.3),
    "dual-path-coco-stage1": (52.2, 37.2),
}
# Text query alone
TABLE_VII = {
    "dual-path-pedes-vgg16-stage1": (14.26, 33.07, 43.47, 16),
    "dual-path-pedes-vgg16": (32.15, 54.42, 64.30, 4),
    "dual-path-pedes-stage1": (15.03, 31.66, 41.62, 18),
    "dual-path-pedes": (44.40, 66.26, 75.07, 2),
}
TABLE_VIII = {
    "COCO 1K": {
        "dual-path-coco-vgg19-stage1": ((46.0, 75.6, 85.3, 2), (34.4, 66.6, 78.7, 3)),
        "dual-path-coco-vgg19": ((59.4, 86.2, 92.9, 1), (41.6, 76.3, 87.5, 2)),
        "dual-path-coco-stage1": ((52.2, 80.4, 88.7, 1), (37.2, 69.5, 80.6, 2)),
        "dual-path-coco": ((65.6, 89.8, 95.5, 1), (47.1, 79.9, 90.0, 2)),
    },
    "COCO 5K": {
        "dual-path-coco-vgg19-stage1": ((24.5, 50.1, 62.1, 5), (16.5, 39.1, 51.8, 10)),
        "dual-path-coco-vgg19": ((35.5, 63.2, 75.6, 3), (21.0, 47.5, 60.9, 6)),
        "dual-path-coco-stage1": ((28.6, 56.2, 68.0, 4), (18.7, 42.4, 55.1, 8)),
        "dual-path-coco": ((41.2, 70.5, 81.1, 2), (25.3, 53.4, 66.4, 5)),
    },
}


def published():
    """Every row: recipe, table, data, and figures of image to text and text to image."""
    for name, both in TABLE_I.items():
        yield name, "I", "Flickr30K", *both
    for table, rows in (("II", TABLE_II), ("V", TABLE_V), ("VI", TABLE_VI)):
        for name, (image, image_10, text, text_10) in rows.items():
            yield name, table, "Flickr30K, validation", (image, "-", image_10), (text, "-", text_10)
    for table, data, rows in (*(("III", *some) for some in TABLE_III.items()), ("IV", "COCO 1K", TABLE_IV)):
        for name, (image, text) in rows.items():
            yield name, table, data, (image, "-", "-"), (text, "-", "-")
    for name, figures in TABLE_VII.items():
        yield name, "VII", "CUHK-PEDES", None, figures
    for data, rows in TABLE_VIII.items():
        for name, both in rows.items():
            yield name, "VIII", data, *both


def test_every_row_of_the_tables_is_in_its_recipe():
    found, numbers = [], []
    for name in NAMES:
        paper = load_recipe(name).paper
        assert paper.reference == PAPER
        for row in paper.row:
            found.append((name, row.number.split(",")[0], row.data, row.i2t, row.t2i))
            numbers.append(row.number)
            assert (row.reference, row.t2t, row.phrases) == (None, None, None)
            stage = "Stage II" if len(load_recipe(name).stage) == 2 else "Stage I"
            assert [part for part in row.number.split(", ") if part.startswith("Stage")] in ([], [stage])
    assert sorted(found, key=str) == sorted(as_read(published()), key=str)
    assert len(set(numbers)) == len(numbers)
    assert {each[0] for each in found} == set(OF_PAPER) - {
        f"dual-path-{count}-classes-stage1" for count in (3000, 10000)
    }


def as_read(rows):
    """The rows with each figure as a recipe has it: a float, or a dash."""
    for *about, images, texts in rows:
        both = (images, texts)
        yield (*about, *(some and tuple(f if f == "-" else float(f) for f in some) for some in both))


def test_the_base_is_the_papers_network():
    assert load_recipe("dual-path-stage1").model.model_dump() == {
        "name": "dual_path",
        "image": {
            "name": "views",
            "backbone": "resnet50",
            "weights": None,
            "side": None,  # the backbone's own, 224
            "batch_norm": "frozen",
            "crops": "mirrored",
            "resize": "short",
            "normalise": False,
        },
        "text": {
            "name": "cnn",
            "word": 300,
            "depth": "resnet50",
            "length": 32,
            "pool": "mean",
            "alignment": "shift",
        },
        "words": 0,
        "hidden": 2048,
        "joint": 2048,
        "heads": "paper",
        "dropout": 0.75,
        "shifts": "one",
    }
    assert resized_side(224) == 256


@pytest.mark.parametrize("name", OF_PAPER)
def test_the_stages(name):
    recipe = load_recipe(name)
    first, second = ("image_head", "text", "text_head"), ("all",)
    staged = [("scratch", None, first, 240), ("previous", "window", second, 60)]  # 240: Fig. 8; 60 is ours
    weights = [(0, 1, 1), (1, 1, 1)]  # lambda 1 to 3 of Eq. 9
    if "-ranking" in name:
        weights = [(1, 0, 0)] * 2
    elif "-instance" in name:
        weights = [(0, 1, 1)] * 2
    assert len(recipe.stage) == (1 if name.endswith("-stage1") else 2)
    assert (recipe.seed, recipe.text.model_dump(exclude_none=True)) == (
        0,
        {"tokeniser": "words", "threshold": 1, "grow": False, "use": "filter" if "random-words" in name else "both"},
    )
    for stage, about, expected in zip(recipe.stage, staged, weights, strict=False):
        loss, optimiser = stage.objective, stage.optimiser
        assert (stage.start, stage.crops, stage.trainable, stage.epochs) == about
        assert (loss.name, loss.margin, loss.negatives, loss.bias, loss.sampled) == ("instance", 1, "next", False, None)
        assert (loss.rank, loss.visual, loss.textual) == expected
        assert (optimiser.name, optimiser.rate, optimiser.momentum, optimiser.nesterov) == ("sgd", 0.001, 0.9, False)
        assert (optimiser.clip, optimiser.decay, optimiser.parts) == (0, 0, {})
        splits = ("train", "restval") if "-coco" in name else ("train",)  # section V-A: 113,287 training images of COCO
        assert (stage.batches.size, stage.batches.neighbours, stage.splits) == (32, False, splits)
        assert stage.select == ("t2i_r1" if name in PERSONS else "rsum")
    assert {recipe.stage[0].schedule.share(epoch, 240) for epoch in range(240)} == {1}


def flat(value, path=""):
    """The values of nested tables and lists by their dotted paths; lists count from 1."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        items = enumerate(value, 1)
    else:
        return {path: value}
    return {key: leaf for name, below in items for key, leaf in flat(below, f"{path}.{name}".strip(".")).items()}


def differences(name, base):
    """What a recipe has otherwise than another, beside title and rows: its values by path, None where it has none."""
    here, there = (flat(load_recipe(each).model_dump(exclude={"title", "paper"})) for each in (name, base))
    return {path: here.get(path) for path in here | there if here.get(path) != there.get(path)}


def alone(*stages):
    """The ranking loss alone in these stages; in the second it is already there."""
    each = {f"stage.{number}.objective.{side}": 0 for number in stages for side in ("visual", "textual")}
    return {"stage.1.objective.rank": 1, **each}


SQUARE = {"model.image.resize": "square"}
SMALL_SIZES = {"model.image.resize", "model.image.backbone", "model.text.depth"}  # the same in all small ones
PERSON = {**SQUARE, "model.text.length": 56, "stage.1.select": "t2i_r1"}
BOTH_PERSON = {**PERSON, "stage.2.select": "t2i_r1"}
DEEP = {"model.image.backbone": "resnet152", "model.text.depth": "resnet152"}
STAGE_2 = {f"stage.2.{path}" for path in flat(load_recipe("dual-path").stage[1].model_dump())}
# What each is named after
VARIANTS = {
    "dual-path-vgg19-stage1": ("dual-path-stage1", {"model.image.backbone": "vgg19"}),
    "dual-path-vgg19": ("dual-path", {"model.image.backbone": "vgg19"}),
    "dual-path-resnet152-stage1": ("dual-path-stage1", DEEP),
    "dual-path-resnet152": ("dual-path", DEEP),
    "dual-path-resnet152-text50-stage1": ("dual-path-stage1", {"model.image.backbone": "resnet152"}),
    "dual-path-ranking-stage1": ("dual-path-stage1", alone(1)),
    "dual-path-ranking": ("dual-path", alone(1, 2)),
    "dual-path-instance": ("dual-path", {"stage.2.objective.rank": 0}),
    "dual-path-3000-classes-stage1": ("dual-path-stage1", {"stage.1.objective.clusters": 3000}),
    "dual-path-10000-classes-stage1": ("dual-path-stage1", {"stage.1.objective.clusters": 10000}),
    "dual-path-random-words-stage1": ("dual-path-stage1", {"text.use": "filter"}),
    "dual-path-left-stage1": ("dual-path-stage1", {"model.text.alignment": "left"}),
    "dual-path-pedes-stage1": ("dual-path-stage1", PERSON),
    "dual-path-pedes": ("dual-path", BOTH_PERSON),
    "dual-path-pedes-vgg16-stage1": ("dual-path-stage1", {**PERSON, "model.image.backbone": "vgg16"}),
    "dual-path-pedes-vgg16": ("dual-path", {**BOTH_PERSON, "model.image.backbone": "vgg16"}),
}
RESTVAL = {"stage.1.splits": ("train", "restval")}
VARIANTS |= {
    name: (
        name.replace("-coco", ""),
        RESTVAL if name.endswith("-stage1") else RESTVAL | {"stage.2.splits": RESTVAL["stage.1.splits"]},
    )
    for name in OF_PAPER
    if "-coco" in name
}
# Forms for two cores without the same one of the paper: fewer classes for fewer groups, and the deeper text CNN
OWN = {
    "dual-path-500-classes-stage1-small": ("dual-path-stage1-small", {"stage.1.objective.clusters": 500}),
    "dual-path-2000-classes-stage1-small": ("dual-path-stage1-small", {"stage.1.objective.clusters": 2000}),
    "dual-path-deeper-stage1-small": ("dual-path-stage1-small", {"model.text.depth": "resnet50"}),
}
SIZES = {"hidden", "joint", "dropout", "image.backbone", "image.side", "image.resize", "text.word", "text.depth"}
RATES = {
    "epochs",
    "batches.size",
    *(f"optimiser.{key}" for key in ("name", "rate", "momentum", "nesterov", "decay")),
    *(f"optimiser.parts.{part}" for part in ("image_head", "text.words")),
}
RATES |= {f"schedule.{key}" for key in ("name", "warm_up", "every", "factor")}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_in_what_it_is_named_after(name):
    base, changes = VARIANTS[name]
    assert differences(name, base) == changes
    small = {path: value for path, value in changes.items() if path not in SMALL_SIZES and "splits" not in path}
    assert differences(f"{name}-small", f"{base}-small") == small


def test_every_recipe_is_compared():
    assert {"dual-path-stage1", "dual-path", *VARIANTS} == set(OF_PAPER)
    assert {name.removesuffix("-small") for name in SMALL if name not in OWN} == {*OF_PAPER, "dual-path-public"}


@pytest.mark.parametrize("name", OWN)
def test_a_small_variant_differs_from_the_small_base_in_what_it_is_named_after(name):
    base, changes = OWN[name]
    assert differences(name, base) == changes


@pytest.mark.parametrize("name", [*PERSONS, *SMALL])
def test_people_and_what_is_small_are_read_in_squares(name):
    assert load_recipe(name).model.image.resize == "square"


def test_the_second_stage_is_all_that_is_added():
    assert set(differences("dual-path", "dual-path-stage1")) <= STAGE_2


@pytest.mark.parametrize("name", [name for name in SMALL if name not in OWN])
def test_a_small_version_asks_the_same_of_a_smaller_model(name):
    recipe = load_recipe(name)
    allowed = {f"model.{key}" for key in SIZES} | {f"stage.{number}.{key}" for number in (1, 2) for key in RATES}
    allowed |= {"stage.2.trainable", "stage.2.optimiser.parts.image.backbone"}
    if name not in PERSONS:
        allowed.add("model.text.length")
    if "-coco" in name:
        allowed |= RESTVAL.keys() | {"stage.2.splits"}
    found = differences(name, name.removesuffix("-small"))
    assert set(found) <= allowed
    assert (found["model.image.backbone"], found["model.text.depth"]) == ("lite0", "small")
    assert recipe.paper.row == ()


# What the authors' code has otherwise than the paper
PUBLIC = {
    "model.heads": "public",
    "model.shifts": "mean",
    "model.text.depth": "public",
    "model.text.pool": "max",
    **{
        f"stage.{number}.{key}": value
        for number in (1, 2)
        for key, value in {
            "objective.bias": True,
            "optimiser.rate": 0.1,
            "optimiser.decay": 0.0001,
            "optimiser.nesterov": True,
            "optimiser.parts.text.words": 0.001,
        }.items()
    },
    "stage.2.objective.rank": 2,
    "stage.2.objective.textual": 0.1,
    "stage.2.objective.negatives": "max",
    "stage.2.optimiser.parts.image.backbone": 0.001,
}


def test_the_authors_code():
    assert differences("dual-path-public", "dual-path") == PUBLIC
    assert [blocks for _, blocks in cnn.DEPTHS["public"]] == [3, 4, 6, 1]
    assert [blocks for _, blocks in cnn.DEPTHS["resnet50"]] == [3, 4, 6, 3]
    assert [blocks for _, blocks in cnn.DEPTHS["resnet152"]] == [3, 8, 36, 3]
