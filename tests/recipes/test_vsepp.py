"""The recipes of the VSE++ paper against its tables and sections 3, 3.2 and 3.5, which are typed in here once more."""

from typing import NamedTuple

import pytest

from diptych.training.recipe_catalogue import recipe_names
from diptych.training.recipe_loader import load_recipe

COCO, FOLD, COCO_5K, FLICKR = (
    "COCO, 1K test images",
    "COCO, 1K test images, 1 fold",
    "COCO, 5K test images",
    "Flickr30K",
)

# R@1, R@5, R@10 and median rank: image to text (caption retrieval), text to image (image retrieval)
PUBLISHED = {
    "1.6": (FOLD, (43.6, 74.8, 84.6, 2.0), (33.7, 68.8, 81.0, 3.0)),
    "1.7": (COCO, (49.0, 79.8, 88.4, 1.8), (37.1, 72.2, 83.8, 2.0)),
    "1.8": (COCO, (51.9, 81.5, 90.4, 1.0), (39.5, 74.1, 85.6, 2.0)),
    "1.9": (COCO, (57.2, 86.0, 93.3, 1.0), (45.9, 79.4, 89.1, 2.0)),
    "1.10": (COCO, (58.3, 86.1, 93.3, 1.0), (43.6, 77.6, 87.8, 2.0)),
    "1.11": (COCO, (64.6, 90.0, 95.7, 1.0), (52.0, 84.3, 92.0, 1.0)),
    "1.13": (COCO_5K, (32.9, 61.7, 74.7, 3.0), (24.1, 52.8, 66.2, 5.0)),
    "1.14": (COCO_5K, (41.3, 71.1, 81.2, 2.0), (30.3, 59.4, 72.4, 4.0)),
    "2.1": (FOLD, (43.2, 73.9, 85.0, 2.0), (33.0, 67.4, 80.7, 3.0)),
    "2.2": (COCO, (43.1, 77.0, 87.1, 2.0), (32.5, 68.3, 82.1, 3.0)),
    "2.3": (COCO, (46.8, 78.8, 89.0, 1.8), (34.2, 70.4, 83.6, 2.6)),
    "2.4": (COCO, (50.1, 81.5, 90.5, 1.6), (39.7, 75.4, 87.2, 2.0)),
    "2.5": (COCO, (52.7, 83.0, 91.8, 1.0), (36.0, 72.6, 85.5, 2.2)),
    "2.6": (COCO, (56.0, 85.8, 93.5, 1.0), (43.7, 79.4, 89.7, 2.0)),
    "3.8": (FLICKR, (29.8, 59.8, 71.9, 3.0), (23.0, 48.8, 61.0, 6.0)),
    "3.9": (FLICKR, (31.6, 59.3, 71.7, 4.0), (21.6, 50.7, 63.8, 5.0)),
    "3.10": (FLICKR, (31.9, 58.4, 68.0, 4.0), (23.1, 49.2, 60.7, 6.0)),
    "3.11": (FLICKR, (38.6, 64.6, 74.6, 2.0), (26.8, 54.9, 66.8, 4.0)),
    "3.12": (FLICKR, (37.4, 65.4, 77.2, 3.0), (26.8, 57.6, 69.5, 4.0)),
    "3.13": (FLICKR, (41.3, 69.1, 77.9, 2.0), (31.4, 60.0, 71.2, 3.0)),
    "3.14": (FLICKR, (36.6, 67.3, 78.4, 3.0), (23.3, 52.6, 66.0, 5.0)),
    "3.15": (FLICKR, (43.7, 71.9, 82.1, 2.0), (32.3, 60.9, 72.1, 3.0)),
    "3.16": (FLICKR, (42.1, 73.2, 84.0, 2.0), (31.8, 62.6, 74.1, 3.0)),
    "3.17": (FLICKR, (52.9, 80.5, 87.2, 1.0), (39.6, 70.1, 79.5, 2.0)),
    "4.2": (COCO, (49.5, 81.0, 90.0, 1.8), (38.1, 73.3, 85.1, 2.0)),
    "4.3": (COCO, (48.5, 80.9, 90.3, 1.8), (39.6, 75.3, 86.7, 2.0)),
    "4.4": (COCO, (51.3, 82.2, 91.0, 1.2), (40.1, 75.3, 86.1, 2.0)),
    "4.5": (COCO, (53.0, 83.4, 91.9, 1.0), (42.3, 77.4, 88.1, 2.0)),
}


class Method(NamedTuple):
    """What sections 2, 3 and 3.5 say of a model."""

    model: str
    negatives: str
    margin: float
    rates: tuple[float, float]  # fifteen epochs each
    options: dict[str, bool]


METHODS = {
    "VSE0": Method("vse", "sum", 0.2, (0.0002, 0.00002), {"normalise_images": False, "normalise_texts": True}),
    "VSE++": Method("vse", "max", 0.2, (0.0002, 0.00002), {"normalise_images": True, "normalise_texts": True}),
    "Order0": Method("order", "sum", 0.05, (0.001, 0.0001), {"absolute": True, "root": False}),
    # The root is the public code's: the square of section 3.5 collapses with max of hinges.
    "Order++": Method("order", "max", 0.2, (0.0002, 0.00002), {"absolute": False, "root": True}),
}


class Row(NamedTuple):
    """What a row of the tables says: whose model, on what, and whether the network is fine-tuned (FT)."""

    numbers: tuple[str, ...]
    method: str
    backbone: str
    trainset: str
    tuned: bool = False


RECIPES = {
    "vsepp-1c-vgg19": Row(("1.6", "3.10"), "VSE++", "vgg19", "1C"),
    "vsepp-rc-vgg19": Row(("1.7", "3.11"), "VSE++", "vgg19", "RC"),
    "vsepp-rc-rv-vgg19": Row(("1.8",), "VSE++", "vgg19", "RC+rV"),
    "vsepp-rc-rv-vgg19-ft": Row(("1.9", "1.13"), "VSE++", "vgg19", "RC+rV", True),
    "vsepp-rc-rv-resnet152": Row(("1.10",), "VSE++", "resnet152", "RC+rV"),
    "vsepp-rc-rv-resnet152-ft": Row(("1.11", "1.14"), "VSE++", "resnet152", "RC+rV", True),
    "vse0-1c-vgg19": Row(("2.1", "3.8"), "VSE0", "vgg19", "1C"),
    "vse0-rc-vgg19": Row(("2.2", "3.9"), "VSE0", "vgg19", "RC"),
    "vse0-rc-rv-vgg19": Row(("2.3",), "VSE0", "vgg19", "RC+rV"),
    "vse0-rc-rv-vgg19-ft": Row(("2.4",), "VSE0", "vgg19", "RC+rV", True),
    "vse0-rc-rv-resnet152": Row(("2.5",), "VSE0", "resnet152", "RC+rV"),
    "vse0-rc-rv-resnet152-ft": Row(("2.6",), "VSE0", "resnet152", "RC+rV", True),
    "vse0-rc-vgg19-ft": Row(("3.12",), "VSE0", "vgg19", "RC", True),
    "vsepp-rc-vgg19-ft": Row(("3.13",), "VSE++", "vgg19", "RC", True),
    "vse0-rc-resnet152": Row(("3.14",), "VSE0", "resnet152", "RC"),
    "vsepp-rc-resnet152": Row(("3.15",), "VSE++", "resnet152", "RC"),
    "vse0-rc-resnet152-ft": Row(("3.16",), "VSE0", "resnet152", "RC", True),
    "vsepp-rc-resnet152-ft": Row(("3.17",), "VSE++", "resnet152", "RC", True),
    "vse0-10c-rv-vgg19": Row(("4.2",), "VSE0", "vgg19", "10C+rV"),
    "order0-10c-rv-vgg19": Row(("4.3",), "Order0", "vgg19", "10C+rV"),
    "vsepp-10c-rv-vgg19": Row(("4.4",), "VSE++", "vgg19", "10C+rV"),
    "orderpp-10c-rv-vgg19": Row(("4.5",), "Order++", "vgg19", "10C+rV"),
}


def test_every_row_of_the_authors_has_one_recipe():
    packaged = {name for name in recipe_names() if name.startswith(("vse", "order")) and name[-4:] != "mall"}
    # On the default backbone.
    packaged -= {"vse0", "vsepp", "order0", "orderpp", "vsepp-public", "vsepp-curriculum"}
    packaged -= {"order0-equal", "orderpp-equal"}  # at equal settings
    assert packaged == set(RECIPES)
    numbers = [number for row in RECIPES.values() for number in row.numbers]
    assert sorted(numbers) == sorted(PUBLISHED)


def test_no_other_recipe_claims_a_row():
    papers = {name: load_recipe(name).paper for name in set(recipe_names()) - set(RECIPES)}
    assert not [name for name, paper in papers.items() if paper and "Faghri" in paper.reference and paper.row]


@pytest.mark.parametrize("name", RECIPES)
def test_the_published_figures(name):
    paper = load_recipe(name).paper
    found = {row.number: (row.data, row.i2t, row.t2i) for row in paper.row if row.reference is None}
    assert found == {number: PUBLISHED[number] for number in RECIPES[name].numbers}
    assert "Faghri" in paper.reference


@pytest.mark.parametrize("name", RECIPES)
def test_the_model(name):
    recipe, row = load_recipe(name), RECIPES[name]
    model = recipe.model
    method = METHODS[row.method]
    assert model.name == method.model
    assert {option: getattr(model, option) for option in method.options} == method.options
    assert (model.joint, model.text.name, model.text.hidden, model.text.word) == (1024, "gru", 1024, 300)
    assert model.text_projection  # Eq. 2; the public code has none
    assert (recipe.text.threshold, recipe.text.vectors) == (4, None)  # as the public code
    assert model.dropout == 0
    # A recipe of random crops still measures on the centre.
    crops = row.trainset.removesuffix("+rV")
    image = model.image
    assert (image.name, image.backbone, image.weights) == ("backbone", row.backbone, None)
    assert (image.crops, image.resize) == ("1C" if crops == "RC" else crops, "square")


def test_what_separates_the_recipe_from_the_public_code():
    paper, public = (load_recipe(name).model_dump() for name in ("vsepp", "vsepp-public"))
    assert (paper["model"].pop("text_projection"), public["model"].pop("text_projection")) == (True, False)
    objectives = [recipe["stage"][0]["objective"] for recipe in (paper, public)]
    assert [objective.pop("mask_same_group") for objective in objectives] == [True, False]
    assert paper.pop("title") != public.pop("title")
    assert paper == public


@pytest.mark.parametrize("name", RECIPES)
def test_the_stages(name):
    recipe, row = load_recipe(name), RECIPES[name]
    method = METHODS[row.method]
    frozen, tuned = ("project", "text", "project_text"), ("all",)
    early, late = method.rates
    stages = [("scratch", frozen, [early] * 15 + [late] * 15)]
    if row.tuned:
        stages.append(("previous", tuned, [0.00002] * 15))
    assert len(recipe.stage) == len(stages)
    for stage, (start, trainable, rates) in zip(recipe.stage, stages, strict=True):
        assert (stage.start, stage.trainable, stage.epochs) == (start, trainable, len(rates))
        shares = [stage.schedule.share(epoch + part, stage.epochs) for epoch in range(len(rates)) for part in (0, 0.99)]
        assert [stage.optimiser.rate * share for share in shares] == pytest.approx([r for r in rates for _ in range(2)])
        assert stage.splits == (("train", "restval") if row.trainset.endswith("+rV") else ("train",))
        assert stage.crops == ("RC" if row.trainset.startswith("RC") else None)
        assert stage.objective.name == "hinge"
        assert (stage.objective.negatives, stage.objective.margin) == (method.negatives, method.margin)
        assert (stage.optimiser.name, stage.optimiser.clip, stage.optimiser.parts) == ("adam", 2.0, {})
        assert (stage.batches.size, stage.select, stage.patience) == (128, "rsum", None)


@pytest.mark.parametrize("profile", [None, "small"])
def test_order0_and_orderpp_at_equal_settings_differ_in_the_loss_and_absolute_values_alone(profile):
    order0, orderpp = (load_recipe(f"{name}-equal", profile=profile) for name in ("order0", "orderpp"))
    [whole], [begin, rest] = order0.stage, orderpp.stage
    assert (whole.objective.negatives, begin.objective.negatives, rest.objective.negatives) == ("sum", "sum", "max")
    assert begin.objective.margin == rest.objective.margin == 0.2
    assert begin.epochs + rest.epochs == whole.epochs
    assert (begin.epochs, rest.start) == (2, "previous")
    rates = [stage.optimiser.rate * stage.schedule.share(0, stage.epochs) for stage in (whole, begin, rest)]
    assert rates == [0.001] * 3
    drops = [
        [
            epoch
            for epoch in range(1, stage.epochs)
            if stage.schedule.share(epoch, 99) < stage.schedule.share(epoch - 1, 99)
        ]
        for stage in (whole, rest)
    ]
    assert drops == ([[8], [6]] if profile else [[15], [14]])  # once, after the same epoch or one later
    for stage in (begin, rest):
        assert (stage.trainable, stage.batches, stage.splits) == (whole.trainable, whole.batches, whole.splits)
        assert stage.optimiser == whole.optimiser
    assert order0.model.model_copy(update={"absolute": False}) == orderpp.model
    assert (order0.model.text_projection, order0.model.root) == (False, True)


def test_the_rate_of_both_can_be_set():
    same = ["stage.1.optimiser.rate=0.0005"]
    assert load_recipe("order0-equal", same).stage[0].optimiser.rate == 0.0005
    both = load_recipe("orderpp-equal", [*same, "stage.2.optimiser.rate=0.0005"])
    assert [stage.optimiser.rate for stage in both.stage] == [0.0005, 0.0005]
