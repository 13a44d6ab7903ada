"""The recipes of the ConVSE paper against its Tables I to IV and section IV-A, which are typed in here once more."""

import pytest

from diptych.training.recipe_catalogue import recipe_names
from diptych.training.recipe_loader import load_recipe

COCO, FLICKR = "COCO, 1K test images", "Flickr30K"
MEAN = "I, mean of 5 runs"

# R@1, R@5, R@10: image to text, text to image
PUBLISHED = {
    ("mvn-rc-rv-resnet152", "III.1"): (COCO, (54.1, 83.8, 92.1), (44.9, 80.5, 90.5)),
    ("mvn-rc-resnet152", "III.1"): (FLICKR, (42.8, 72.9, 83.1), (34.1, 64.7, 75.6)),
    ("vse0-rc-rv-resnet152-ft", "III.2"): (COCO, (56.0, 85.8, 93.5), (43.7, 79.4, 89.7)),
    ("vse0-rc-resnet152-ft", "III.2"): (FLICKR, (42.1, 73.2, 84.0), (31.8, 62.6, 74.1)),
    ("vsepp-rc-rv-resnet152-ft", "III.3"): (COCO, (64.6, 90.0, 95.7), (52.0, 84.3, 92.0)),
    ("vsepp-rc-resnet152-ft", "III.3"): (FLICKR, (52.9, 80.5, 87.2), (39.6, 70.1, 79.5)),
    ("convse-rc-rv-resnet152", "III.4, IV"): (COCO, (63.9, 89.3, 95.3), (50.5, 83.3, 92.3)),
    ("convse-rc-resnet152", "III.4, IV"): (FLICKR, (55.6, 81.0, 88.8), (39.0, 69.3, 79.4)),
    ("convsepp-rc-rv-resnet152", "III.5, IV"): (COCO, (66.7, 91.5, 96.6), (53.1, 84.1, 91.6)),
    ("convsepp-rc-resnet152", "III.5, IV"): (FLICKR, (57.8, 84.3, 88.9), (41.0, 71.1, 80.0)),
    ("convse-rc-rv-resnet152", MEAN): (COCO, (63.6, 89.3, 95.3), (50.5, 83.5, 92.2)),
    ("convse-rc-resnet152", MEAN): (FLICKR, (55.4, 80.1, 88.3), (39.4, 70.1, 80.1)),
    ("convsepp-rc-rv-resnet152", MEAN): (COCO, (66.7, 91.4, 96.7), (53.0, 84.1, 91.6)),
    ("convsepp-rc-resnet152", MEAN): (FLICKR, (58.1, 83.4, 89.7), (41.3, 70.8, 79.7)),
}

SWEEPS = {
    "II, temperature = 0.05": ((66.0, 91.2, 96.3), (52.9, 84.0, 91.5)),
    "II, temperature = 0.1, output = 1024": ((66.6, 91.3, 96.7), (53.0, 84.1, 91.8)),
    "II, temperature = 0.5": ((66.5, 90.8, 96.8), (52.9, 84.2, 91.5)),
    "II, temperature = 1.0": ((66.3, 90.9, 96.6), (52.8, 84.0, 91.4)),
    "II, output = 64": ((64.5, 90.1, 96.0), (51.3, 82.8, 90.7)),
    "II, output = 128": ((65.8, 90.7, 96.2), (52.4, 83.9, 91.2)),
    "II, output = 256": ((66.2, 91.1, 96.6), (52.7, 83.9, 91.5)),
    "II, output = 512": ((66.1, 91.1, 96.6), (52.6, 84.0, 91.5)),
    "II, output = 2048": ((66.5, 91.2, 96.8), (52.8, 84.0, 91.5)),
}
PUBLISHED |= {("convsepp-rc-rv-resnet152", number): (COCO, *both) for number, both in SWEEPS.items()}

OBJECTIVES = {
    "mvn": {"name": "mvn", "temperature": 0.1, "learn_temperature": False},
    "convse": {
        "name": "contrastive",
        "negatives": "sum",
        "temperature": 0.1,
        "margin": None,
        "learn_temperature": False,
    },
    "convsepp": {
        "name": "contrastive",
        "negatives": "max",
        "temperature": 0.1,
        "margin": 0.2,
        "learn_temperature": False,
    },
}

HEADS = {"base.project", "base.text", "base.project_text", "head_images", "head_texts"}
WITHOUT_HEADS = {part.removeprefix("base.") for part in HEADS if part.startswith("base.")}
PAPERS = [f"{method}{ending}" for method in OBJECTIVES for ending in ("", "-rc-resnet152", "-rc-rv-resnet152")]
FAMILY = [f"{method}{ending}" for method in OBJECTIVES for ending in ("-small", "-head")]


def test_every_row_that_the_authors_trained_has_a_recipe():
    found = {}
    for name in recipe_names():
        paper = load_recipe(name).paper
        for row in paper.row if paper else ():
            if "ConVSE" in (row.reference or paper.reference):
                found[name, row.number] = (row.data, row.i2t, row.t2i)
    assert found == PUBLISHED


@pytest.mark.parametrize("name", PAPERS)
def test_the_stages_of_the_paper(name):
    recipe = load_recipe(name)
    base, tuning, heads = recipe.stage
    restval = "-rv-" in name
    assert "ConVSE" in recipe.paper.reference
    backbone = "resnet152" if "resnet152" in name else "lite0"
    assert (recipe.model.name, recipe.model.joint, recipe.model.image.backbone) == ("vse", 1024, backbone)
    assert not recipe.model.text_projection  # the GRU's state is the embedding
    for stage in recipe.stage:
        assert stage.crops == "RC"
        assert stage.splits == (("train", "restval") if restval else ("train",))
        assert stage.optimiser.name == "adam"
    for stage, epochs in ((base, 30), (tuning, 15)):
        objective = stage.objective
        assert (objective.name, objective.negatives, objective.margin) == ("hinge", "max", 0.2)
        assert (stage.epochs, stage.batches.size) == (epochs, 128)
    assert [base.optimiser.rate * base.schedule.share(place, 30) for place in (0, 14.9, 15, 29.9)] == pytest.approx(
        [0.0002, 0.0002, 0.00002, 0.00002]
    )
    assert (tuning.start, tuning.trainable, tuning.optimiser.rate) == ("previous", ("all",), 0.00002)
    assert {tuning.schedule.share(place, 15) for place in (0, 14.9)} == {1}
    assert_heads(heads, name)
    assert (heads.start, heads.epochs, heads.optimiser.rate) == ("previous", 30, 0.00002)


@pytest.mark.parametrize("name", FAMILY)
def test_the_heads_of_the_others(name):
    recipe = load_recipe(name)
    assert_heads(recipe.stage[-1], name)
    assert recipe.stage[-1].crops is None
    small = name.endswith("-small")
    assert (recipe.model is None, len(recipe.stage)) == (not small, 2 if small else 1)
    if not small:
        assert (recipe.stage[0].epochs, recipe.stage[0].optimiser.rate) == (30, 0.00002)


def assert_heads(stage, name):
    """What section IV-A says of the heads: sizes, loss, batches, a rate that stays, a frozen image encoder."""
    method = name.split("-")[0]
    assert stage.objective.model_dump() == OBJECTIVES[method]
    assert (stage.head.hidden, stage.head.output, stage.head.bias) == (2048, 1024, True)
    assert not stage.head.residual
    assert not stage.head.normalise_input  # Algorithm 1: the length comes after the heads
    assert stage.batches.size == 256
    assert {stage.schedule.share(place, stage.epochs) for place in (0, 14.9, 15, 29.9)} == {1}
    assert set(stage.trainable) == HEADS


CONTROLS = {"": "convse-control", "-small": "convse-control-small", "-head": "convse-control-alone"}
PUBLIC = {"": "mvn-public", "-small": "mvn-public-small", "-head": "mvn-public-alone"}


def without_heads(recipe):
    """All that a recipe says but its title and what its last stage has for heads: the rest is a fair comparison."""
    content = recipe.to_dict()
    last = content["stage"][-1]
    found = last.pop("objective"), set(last.pop("trainable")), last.pop("head", None)
    assert content.pop("title")
    return content, *found


@pytest.mark.parametrize("method", OBJECTIVES)
@pytest.mark.parametrize("ending", CONTROLS)
def test_the_control_has_the_same_steps_without_heads_and_the_objective_of_the_base(method, ending):
    control, of_control, trained, head = without_heads(load_recipe(CONTROLS[ending]))
    heads, *_ = without_heads(load_recipe(method + ending))
    assert control == heads
    assert (trained, head) == (WITHOUT_HEADS, None)
    base = load_recipe("vsepp").stage[0].objective
    assert of_control == base.model_dump() == {**of_control, "name": "hinge", "negatives": "max", "margin": 0.2}


@pytest.mark.parametrize("ending", PUBLIC)
def test_mvn_as_in_the_public_code_has_no_heads(ending):
    public, objective, trained, head = without_heads(load_recipe(PUBLIC[ending]))
    assert (objective, trained, head) == (OBJECTIVES["mvn"], WITHOUT_HEADS, None)
    assert public == without_heads(load_recipe("mvn" + ending))[0]


@pytest.mark.parametrize("method", OBJECTIVES)
@pytest.mark.parametrize("profile", [None, "small"])
def test_residual_heads_differ_from_the_papers_in_what_they_start_from_alone(method, profile):
    residual, *ours, head = without_heads(load_recipe(f"{method}-residual-head", profile=profile))
    plain, *papers, of_paper = without_heads(load_recipe(f"{method}-head", profile=profile))
    assert (residual, ours) == (plain, papers)
    assert of_paper.pop("output") == 1024
    assert head == {**of_paper, "residual": True}
