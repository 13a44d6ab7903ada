"""What the rules ask of a stage."""

import pytest

from diptych.models.matchers.projected import Head, ProjectedSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.instance import Instance
from diptych.training.case import Case
from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe import Recipe, Stage
from support.corpora import corpus_of_groups


@pytest.mark.parametrize("part", ["all", "image"])
def test_a_trained_batch_norm_is_not_cut_into_chunks(part):
    settings = VSESettings(joint=5, image=CNNSettings(pixels=16, width=2), text=GRUSettings(hidden=5, word=3), words=9)
    for model in (settings, ProjectedSettings(base=settings, head=Head(hidden=4, output=4))):
        matcher = model.build()
        set_trainable(matcher, (part if part == "all" or model is settings else f"base.{part}",))
        case = Case(Recipe(stage=(Stage(objective=Contrastive()),)), 1, corpus_of_groups(), matcher)
        assert case.batch_norm.endswith("image.layers.1")
    set_trainable(matcher, ("base.text", "base.project", "head_images"))
    assert case.batch_norm is None


@pytest.mark.parametrize(
    ("second", "finds"),
    [
        ({"start": "previous", "objective": Instance(clusters=2)}, False),
        ({"start": "previous", "objective": Instance(clusters=3)}, True),
        ({"start": "scratch", "objective": Instance(clusters=2)}, True),
        ({"start": "runs/other", "objective": Instance(clusters=2)}, False),
        ({"start": "previous", "objective": Instance()}, False),
    ],
    ids=["same", "another number", "scratch", "a run", "none"],
)
def test_clusters_are_found_anew_unless_they_can_be_taken_over(second, finds):
    recipe = Recipe(stage=(Stage(objective=Instance(clusters=2)), Stage(**second)))
    assert Case(recipe, 2, corpus_of_groups()).finds_clusters == finds
