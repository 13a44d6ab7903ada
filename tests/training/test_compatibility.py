"""Each rule about what a recipe may combine, broken by a stage of its own."""

from types import SimpleNamespace
from typing import Literal

import pytest

from diptych.data.sampling.offline import OfflineSettings
from diptych.data.sampling.regions import PhraseSettings
from diptych.errors import DataError, RecipeError
from diptych.features.regions import Regions
from diptych.models.lora import LoRASettings
from diptych.models.matchers.cca import CCASettings
from diptych.models.matchers.projected import Head, ProjectedSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.mean import MeanSettings
from diptych.objectives.correlation import Correlation
from diptych.objectives.hinge import Hinge
from diptych.objectives.instance import Instance
from diptych.objectives.logistic import Logistic
from diptych.objectives.mvn import MVN
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.objectives.quintuplet import Quintuplet
from diptych.text.tokenisers.bpe import BytePairs
from diptych.text.vocabulary import Vocabulary
from diptych.training.case import Case
from diptych.training.compatibility import MODEL_RULES, RECIPE_RULES, check_models, check_recipe
from diptych.training.recipe import Batches, Optimiser, Recipe, Stage, Text
from support.corpora import corpus_of_groups
from support.shards import stream_corpus

TEXT = {"text": GRUSettings(hidden=5, word=3), "words": 9}
TOWERS = {"image": FeatureSettings(shape=(6,)), **TEXT}
VSE = VSESettings(joint=5, **TOWERS)
PHRASES = PhraseSettings()
OFFLINE = OfflineSettings(lists="runs/teacher")
PIECES = BytePairs.from_texts(["a dog"], 10, 1)
DRAWN = "batches: neighbours, rivals and phrases cannot be combined with offline, chunk or a captioning model"


class OwnTokeniser(GRUSettings):
    """A text tower with a tokeniser of its own."""

    def tokeniser(self):
        return PIECES


def two_branch():
    return TwoBranchSettings(image_layers=(5, 4), text_layers=(5, 4), dropout=0.0, **TOWERS).build()


def matcher_with(**declared):
    """A matcher that declares other capabilities than those of VSE."""
    usual = {
        "image_input": SimpleNamespace(kind="features", regions=None, crops=None),
        "pretrained": None,
        "embedding_dim": 5,
        "extra_terms": (),
        "localises": False,
        "reads_views": False,
        "solves_in_closed_form": False,
        "compares_within_modality": True,
        "settings": SimpleNamespace(name="some_model"),
    }
    return SimpleNamespace(**{**usual, **declared})


def backbone(*, trained):
    return SimpleNamespace(parameters=lambda: [SimpleNamespace(requires_grad=trained)])


def regions(method, *, trained=False):
    image_input = SimpleNamespace(kind="crops", crops="10C", regions=Regions(method=method, count=4))
    return matcher_with(image_input=image_input, pretrained=backbone(trained=trained), localises=True)


class Prototype(Hinge):
    """An objective with a need of its own."""

    name: Literal["prototype"] = "prototype"

    @property
    def needs(self):
        return ("prototypes",)


BROKEN_RECIPES = {
    "the whole training set of a stream": (
        Stage(objective=Quintuplet(), offline=OFFLINE),
        stream_corpus(),
        "offline: negatives are mined over the whole training set, and photos is a stream of shards; train on the data",
    ),
    "empty training split": (
        Stage(objective=Hinge(), splits=("restval",)),
        corpus_of_groups(),
        "some: stage 1 of the recipe trains on the split restval, which has no images",
    ),
    "unknown selection metric": (Stage(objective=Hinge(), select="rsums"), corpus_of_groups(), "did you mean 'rsum'"),
    "no previous stage": (Stage(objective=Hinge(), start="previous"), corpus_of_groups(), "this is the first stage"),
    "interpolation from scratch": (
        Stage(objective=Hinge(), interpolate=(0.5,)),
        corpus_of_groups(),
        "interpolate: the stage starts from scratch, and random weights know nothing that could be kept; start from",
    ),
    "interpolation with a random head": (
        Stage(objective=Hinge(), start="runs/base", interpolate=(0.5,), head=Head()),
        corpus_of_groups(),
        "interpolate: the head starts at random, so the weights before and after it are not of one model; set head",
    ),
    "text settings of a model with its own tokeniser": (
        Recipe(
            model=VSESettings(joint=5, text=OwnTokeniser(hidden=5)),
            text=Text(tokeniser="bpe"),
            stage=(Stage(objective=Hinge()),),
        ),
        corpus_of_groups(),
        "text.tokeniser: the model's pretrained text tower brings its own tokeniser; leave text.tokeniser out",
    ),
    "offline negatives without lists": (
        Stage(objective=Quintuplet()),
        corpus_of_groups(),
        'offline = { lists = "runs/vsepp" }',
    ),
    "lists that nobody reads": (
        Stage(objective=Hinge(), offline=OFFLINE),
        corpus_of_groups(),
        "'hinge' reads no offline negatives; use 'quintuplet'",
    ),
    "offline negatives of a single group": (
        Stage(objective=Quintuplet(), offline=OFFLINE),
        corpus_of_groups((0, 0, 0, 3)),
        "some: all training images and texts belong to one group, so there are no negatives",
    ),
    "lists of a later stage": (
        Stage(objective=Quintuplet(), offline=OfflineSettings(lists="stage-3")),
        corpus_of_groups(),
        "offline.lists = 'stage-3': not an earlier stage",
    ),
    "lists of a start from scratch": (
        Stage(objective=Quintuplet(), offline=OfflineSettings(lists="start")),
        corpus_of_groups(),
        "offline.lists = 'start': the stage starts from scratch, and random weights find no hard negatives; start from",
    ),
    "classes of a single group": (
        Stage(objective=Instance()),
        corpus_of_groups((0, 0, 0, 3)),
        "so there is nothing to classify",
    ),
    "more clusters than groups": (
        Stage(objective=Instance(clusters=3)),
        corpus_of_groups(),
        "objective.clusters = 3: the data has 3 groups; use fewer clusters",
    ),
    "a sample of classes no larger than a batch": (
        Stage(objective=Instance(sampled=2), batches=Batches(size=2)),
        corpus_of_groups(),
        "objective.sampled = 2: a batch of 2 pairs may have as many classes",
    ),
    "pair scores without negatives": (
        Stage(objective=Logistic()),
        corpus_of_groups(),
        "batches.rivals: 'logistic' scores each pair against negatives drawn for it; set batches.rivals = 1",
    ),
    "text negatives of phrases": (
        Stage(objective=Neighbourhood(), batches=Batches(rivals=1), phrases=PHRASES),
        corpus_of_groups(),
        "set phrases.rivals",
    ),
    "neighbours of all positives": (
        Stage(objective=Neighbourhood(), batches=Batches(neighbours=True), phrases=PhraseSettings(positives="all")),
        corpus_of_groups(),
        "phrases.positives = 'all': every positive is in the batch already; leave out batches.neighbours",
    ),
    "neighbourhood constraints without neighbours": (
        Stage(objective=Neighbourhood(text_to_text=0.2)),
        corpus_of_groups(),
        "constraints need neighbours in the batch; set it to true",
    ),
    "closed form in one epoch": (
        Stage(objective=Correlation(), epochs=2),
        corpus_of_groups(),
        "epochs: 'correlation' is solved in one pass over the pairs; set epochs = 1 and no neighbours",
    ),
    "mixed precision in closed form": (
        Stage(objective=Correlation(), epochs=1, precision="float16"),
        corpus_of_groups(),
        "precision = 'float16': 'correlation' solves equations, which half precision would spoil; leave precision out",
    ),
    "classes of phrases": (
        Stage(objective=Instance(), phrases=PHRASES),
        corpus_of_groups(),
        "phrases have no groups",
    ),
    "chunks of an objective that needs all scores": (
        Stage(objective=Quintuplet(), batches=Batches(chunk=4)),
        corpus_of_groups(),
        "batches.chunk: 'quintuplet' needs all scores of a batch at once; leave chunk out",
    ),
    "chunks with needs": (
        Stage(objective=Prototype(), batches=Batches(chunk=4)),
        corpus_of_groups(),
        ":Prototype' needs prototypes of a whole batch; leave chunk out",
    ),
    "empty val split": (
        Stage(objective=Hinge()),
        corpus_of_groups(splits=("train",) * 4),
        "some: the val split is empty, and stage.1.select = 'rsum'",
    ),
    "no phrases": (
        Stage(objective=Hinge(), phrases=PHRASES, select="phrase_sum"),
        corpus_of_groups(),
        "(stage 1 needs some in the split train)",
    ),
}


@pytest.mark.parametrize("rule", RECIPE_RULES, ids=lambda rule: rule.name)
def test_a_recipe_rule_refuses_its_stage_in_one_line(rule):
    broken, data, words = BROKEN_RECIPES[rule.name]
    recipe = broken if isinstance(broken, Recipe) else Recipe(stage=(broken,))
    with pytest.raises(rule.error) as caught:
        rule.check(Case(recipe, 1, data))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("stage.1.") == (rule.of_stage and rule.error is RecipeError)
    with pytest.raises((RecipeError, DataError)):
        check_recipe(recipe, data)


BROKEN_MODELS = {
    "a model that is measured on the whole training set of a stream": (
        Stage(objective=Hinge()),
        VSE.build(),
        "model.image: reads features that come with the data, and photos is a stream of shards; use another model",
    ),
    "random crops of proposed regions": (
        Stage(objective=Hinge(), phrases=PHRASES, crops="RC"),
        regions("selective-search"),
        'crops = "RC": selective-search proposes boxes in the whole photo',
    ),
    "proposed regions of a trainable backbone": (
        Stage(objective=Hinge(), phrases=PHRASES),
        regions("selective-search", trained=True),
        'leave the backbone out, or use regions = { method = "grid" }',
    ),
    "phrases without regions": (
        Stage(objective=Hinge(), phrases=PHRASES),
        two_branch(),
        "the model reads whole images; use a two-branch model with model.image.name = 'regions'",
    ),
    "regions without phrases": (Stage(objective=Hinge()), regions("selective-search"), "set phrases = {}"),
    "pieces for a fitted text tower": (
        Stage(objective=Hinge()),
        VSESettings(joint=5, image=FeatureSettings(shape=(6,)), text=MeanSettings(word=5), words=9).build(),
        "model.text: 'mean' is fitted to whole words, and texts are read in pieces; set text.tokeniser = 'words'",
    ),
    "drawn pairs with offline negatives, chunks or captions": (
        Stage(objective=Neighbourhood(), batches=Batches(neighbours=True), offline=OFFLINE),
        two_branch(),
        DRAWN,
    ),
    "closed form": (
        Stage(objective=Correlation(), epochs=1),
        two_branch(),
        "'correlation' and the model 'two_branch' cannot be combined",
    ),
    "gradients in closed form": (
        Stage(objective=Correlation(), epochs=1, start="runs/base", interpolate=(0.5,)),
        matcher_with(solves_in_closed_form=True),
        "objective: 'correlation' computes all weights in closed form; leave out lora and interpolate",
    ),
    "classes of sets": (
        Stage(objective=Instance()),
        matcher_with(embedding_dim=None),
        "'instance' classifies vectors; use an embedding model",
    ),
    "clusters without stored features": (
        Stage(objective=Instance(clusters=2)),
        matcher_with(pretrained=backbone(trained=True)),
        "objective.clusters: clusters are found among stored features; freeze the backbone first",
    ),
    "crops without a backbone": (
        Stage(objective=Hinge(), crops="RC"),
        matcher_with(),
        "random crops need pictures and an image tower with a backbone",
    ),
    "views for a model that reads one vector": (
        Stage(objective=Hinge()),
        matcher_with(image_input=SimpleNamespace(kind="crops", crops="10C", regions=Regions(method="crops", count=2))),
        "'views' gives several vectors per image, which only 'dual_path' reads; use 'backbone'",
    ),
    "chunks of a model with loss terms": (
        Stage(objective=Hinge(), batches=Batches(chunk=4)),
        matcher_with(extra_terms=("caption",)),
        "batches.chunk: the model has loss terms of its own (caption); leave chunk out",
    ),
    "chunks with batch norm": (
        Stage(objective=Hinge(), batches=Batches(chunk=4)),
        VSESettings(joint=5, image=CNNSettings(pixels=16, width=2), **TEXT).build(),
        "batches.chunk: image.layers.1 normalises by the statistics of the batch",
    ),
    "comparison within a modality": (
        Stage(objective=MVN()),
        matcher_with(compares_within_modality=False),
        "'mvn' compares images with images; use an embedding model",
    ),
}


@pytest.mark.parametrize("rule", MODEL_RULES, ids=lambda rule: rule.name)
def test_a_model_rule_refuses_its_stage_in_one_line(rule):
    stage, matcher, words = BROKEN_MODELS[rule.name]
    with pytest.raises(RecipeError) as caught:
        data = stream_corpus() if "stream" in rule.name else corpus_of_groups()
        rule.check(Case(Recipe(stage=(stage,)), 1, data, matcher, PIECES))
    assert words in str(caught.value)
    assert str(caught.value).startswith("stage.1.") == rule.of_stage
    assert "\n" not in str(caught.value)


def test_every_rule_has_a_case_and_a_name_of_its_own():
    assert [rule.name for rule in RECIPE_RULES] == list(BROKEN_RECIPES)
    assert [rule.name for rule in MODEL_RULES] == list(BROKEN_MODELS)


@pytest.mark.parametrize(
    "stage",
    [
        Stage(objective=Neighbourhood(), batches=Batches(rivals=2, chunk=4)),
        Stage(objective=Neighbourhood(), batches=Batches(chunk=4), phrases=PHRASES),
        Stage(objective=Correlation(), epochs=1, batches=Batches(neighbours=True), offline=OFFLINE),
    ],
    ids=["negatives in chunks", "phrases in chunks", "neighbours and lists"],
)
def test_drawn_pairs_are_combined_with_nothing_else(stage):
    rules = {rule.name: rule for rule in MODEL_RULES}
    with pytest.raises(RecipeError, match=DRAWN):
        rules["drawn pairs with offline negatives, chunks or captions"].check(
            Case(Recipe(stage=(stage,)), 1, corpus_of_groups(), two_branch())
        )


def test_a_captioning_model_takes_plain_pairs_only():
    captioner = matcher_with(extra_terms=("caption",))
    for neighbours in (False, True):
        stage = Stage(objective=Hinge(), batches=Batches(neighbours=neighbours))
        case = Case(Recipe(stage=(stage,)), 1, corpus_of_groups(), captioner)
        broken = [rule.name for rule in MODEL_RULES if rule.is_broken(case)]
        assert broken == (["drawn pairs with offline negatives, chunks or captions"] if neighbours else [])


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        (Stage(objective=Neighbourhood(text_to_text=0.2), batches=Batches(neighbours=True)), VSE),
        (Stage(objective=Logistic(), batches=Batches(rivals=1)), VSE),
        (Stage(objective=Hinge(), batches=Batches(chunk=4)), VSE),
        (Stage(objective=Quintuplet(), offline=OFFLINE), VSE),
        (Stage(objective=Instance(clusters=2)), VSE),
        (Stage(objective=Correlation(), epochs=1), CCASettings(joint=2, **TOWERS)),
        (Stage(objective=Hinge(), start="runs/base", head=Head(residual=True), interpolate=(0.5,)), VSE),
        (Stage(objective=Quintuplet(), start="runs/base", offline=OfflineSettings(lists="start")), VSE),
        (Stage(objective=Hinge(), lora=LoRASettings(rank=2, parts=("project",)), trainable=("text",)), VSE),
    ],
    ids=[
        *("neighbours", "negatives", "chunk", "offline", "clusters", "closed form"),
        *("interpolated residual heads", "lists of the start", "low rank"),
    ],
)
def test_what_can_be_combined_is_accepted(stage, settings):
    recipe = Recipe(stage=(stage,))
    check_recipe(recipe, corpus_of_groups())
    name = "projected" if stage.head is not None else settings.name
    assert check_models(recipe, settings, corpus_of_groups()).settings.name == name


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (Stage(objective=Instance()), "objective: 'instance' makes each training group a class"),
        (Stage(objective=Correlation(), epochs=1), "objective: 'correlation' is solved over all pairs at once"),
        (Stage(objective=Hinge(), batches=Batches(neighbours=True)), "batches.neighbours: second positives"),
        (Stage(objective=Logistic(), batches=Batches(rivals=1)), "batches.rivals: negatives are drawn from all"),
        (Stage(objective=Hinge(), phrases=PHRASES), "phrases: shards hold no phrases and boxes"),
    ],
    ids=["classes", "closed form", "neighbours", "negatives", "phrases"],
)
def test_what_needs_the_whole_training_set_cannot_stream(stage, words):
    with pytest.raises(RecipeError, match=f"^stage.1.{words}.*, and photos is a stream of shards; train on the data"):
        check_recipe(Recipe(stage=(stage,)), stream_corpus())


@pytest.mark.parametrize("start", ["scratch", "runs/base"])
@pytest.mark.parametrize("part", ["text", "image", "branch"])
def test_a_fitted_or_standardised_tower_of_a_stream_must_have_been_measured_before(part, start):
    layer = SimpleNamespace(standardises=True)
    towers = {"cached_text_tower": layer if part == "text" else None, "fitted_text_tower": None}
    towers["standardised_texts"] = layer if part == "branch" else None
    matcher = matcher_with(standardised_images=layer if part == "image" else None, **towers)
    matcher.image_input = SimpleNamespace(kind="crops", regions=None, crops="10C")
    rule = next(rule for rule in MODEL_RULES if "stream" in rule.name)
    case = Case(Recipe(stage=(Stage(objective=Hinge(), start=start),)), 1, stream_corpus(), matcher)
    assert bool(rule.is_broken(case)) == (start == "scratch")
    assert not rule.is_broken(Case(case.recipe, 1, corpus_of_groups(), matcher))


def test_plain_training_on_a_stream_is_accepted():
    settings = VSESettings(joint=5, image=CNNSettings(pixels=16, width=2), **TEXT)
    for stage in (Stage(objective=Hinge()), Stage(objective=MVN()), Stage(objective=Hinge(), epochs=3)):
        check_recipe(Recipe(stage=(stage,)), stream_corpus())
        check_models(Recipe(stage=(stage,)), settings, stream_corpus())
    with pytest.raises(DataError, match="trains on the split restval, which has no"):
        check_recipe(Recipe(stage=(Stage(objective=Hinge(), splits=("restval",)),)), stream_corpus())


def test_a_stage_after_low_rank_factors_has_none():
    first = Stage(objective=Hinge(), lora=LoRASettings(rank=2, parts=("project",)))
    second = Stage(objective=Hinge(), start="previous", trainable=("project",))
    matcher = check_models(Recipe(stage=(first, second)), VSE, corpus_of_groups())
    assert not hasattr(matcher.project, "parametrizations")
    assert [name for name, weights in matcher.named_parameters() if weights.requires_grad] == [
        "project.weight",
        "project.bias",
    ]


def test_a_fitted_text_tower_takes_words():
    (rule,) = (rule for rule in MODEL_RULES if rule.name == "pieces for a fitted text tower")
    _, matcher, _ = BROKEN_MODELS[rule.name]
    for tokeniser in (Vocabulary(("a",), (1,), 1), None):
        rule.check(Case(Recipe(stage=(Stage(objective=Hinge()),)), 1, corpus_of_groups(), matcher, tokeniser))


@pytest.mark.parametrize("text", [{"vectors": "glove.txt"}, {"grow": True}, {"threshold": 2}], ids=str)
@pytest.mark.parametrize("tower", [GRUSettings, OwnTokeniser])
def test_a_model_with_its_own_tokeniser_overrules_the_text_table(text, tower):
    model = ProjectedSettings(base=VSESettings(joint=5, text=tower(hidden=5)))
    recipe = Recipe(model=model, text=Text(**text), stage=(Stage(objective=Hinge()),))
    (key,) = text
    if tower is GRUSettings or key == "threshold":
        check_recipe(recipe, corpus_of_groups())
        return
    with pytest.raises(RecipeError, match=f"^text.{key}: the model's pretrained text tower brings its own tokeniser"):
        check_recipe(recipe, corpus_of_groups())


def test_a_part_that_the_model_lacks_is_named_with_its_stage():
    stages = (Stage(objective=Hinge()), Stage(objective=Hinge(), optimiser=Optimiser(parts={"imag": 0.5})))
    with pytest.raises(RecipeError, match=r"^stage\.2\.optimiser\.parts: the model has no part 'imag'"):
        check_models(Recipe(stage=stages), VSE, corpus_of_groups())
