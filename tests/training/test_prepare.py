"""From a recipe's stage to one that is ready to train: what is left out, and the step that is made."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from diptych.models.matchers.cca import CCASettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.correlation import Correlation
from diptych.objectives.hinge import Hinge
from diptych.objectives.instance import Instance
from diptych.training.engine.step import ClosedFormStep, Step
from diptych.training.engine.trainable import set_trainable
from diptych.training.needs.need import Need
from diptych.training.prepare import make_step
from diptych.training.recipe import Batches, Optimiser, Stage
from support.callbacks import RecordingCallback
from support.dual_path import saved_classifier, without_groups


@pytest.fixture(scope="module")
def lacking(dual_path):
    """A corpus whose first training group has no image, and the next two no text."""
    first, second, third, *_ = np.unique(dual_path.corpus.split("train").image_groups)
    return without_groups(without_groups(dual_path.corpus, "image", [first]), "text", [second, third])


LEFT_OUT = (
    "left out of training, because their groups lack the other side: images 4, texts 2; `diptych data check` names them"
)


def test_groups_without_an_image_or_a_text_are_left_out_and_reported_once(dual_path, lacking, tmp_path):
    run, callback = dual_path.train(
        dual_path.two_stages("stage.1.epochs=1", "stage.2.epochs=1"), tmp_path / "run", lacking
    )
    assert callback.messages_with("left out") == [LEFT_OUT]
    assert callback.class_messages[0] == "instance: 11 classes; the classifier is fresh"
    lost = np.unique(dual_path.corpus.split("train").image_groups)[:3]
    assert not np.isin(saved_classifier(run)["groups"].numpy(), lost).any()


def test_a_resumed_run_does_not_report_them_again(dual_path, lacking, tmp_path):
    first, again = RecordingCallback((1,)), RecordingCallback()
    with pytest.raises(KeyboardInterrupt):
        dual_path.train(dual_path.one_stage(), tmp_path, lacking, callback=first)
    dual_path.train(dual_path.one_stage(), tmp_path, lacking, resume=True, callback=again)
    assert first.messages_with("left out") == [LEFT_OUT]
    assert again.messages_with("left out") == []


def test_a_stage_on_other_splits_reports_what_these_lack(dual_path, lacking, tmp_path):
    # The second stage adds a split that has the group without an image, and a whole one.
    groups = lacking.split("train").text_groups
    added = [groups.min(), groups.max()]
    splits = {
        f"{side}_splits": np.where(
            np.isin(getattr(lacking, f"{side}_groups"), added), "restval", getattr(lacking, f"{side}_splits")
        )
        for side in ("image", "text")
    }
    recipe = dual_path.two_stages("stage.1.epochs=1", "stage.2.epochs=1", "stage.2.splits=['train', 'restval']")
    _, callback = dual_path.train(recipe, tmp_path / "run", replace(lacking, **splits))
    assert callback.messages_with("left out") == [LEFT_OUT.replace("texts 2", "texts 0"), LEFT_OUT]


def test_nothing_is_reported_if_nothing_is_left_out(dual_path):
    assert dual_path.trained[1].messages_with("left out") == []


VSE = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9)
CPU = torch.device("cpu")


class Sized(Need):
    """Has a size, and takes over the objective's parameters if it is told to."""

    name = "classes"

    def __init__(self, takes_over):
        self.takes_over = takes_over

    @property
    def size(self):
        return 7

    def make_parameters(self, initial):
        if not self.takes_over:
            return None
        return nn.ParameterDict({name: nn.Parameter(tensor[:2] + 1) for name, tensor in initial.items()})

    def supply(self, batch, pairs):
        return None


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_step_has_the_parameters_of_its_objective_or_of_a_need_that_takes_them_over(takes_over):
    matcher, stage = VSE.build(), Stage(objective=Instance(bias=True))
    step = make_step(matcher, stage, CPU, [Sized(takes_over)])
    rows = 2 if takes_over else 7  # the size of the need is the number of classes
    assert {name: tuple(value.shape) for name, value in step.parameters.items()} == {
        "classifier": (rows, 5),
        "classifier_bias": (rows,),
    }
    optimised = {id(parameter) for group in step.optimiser.param_groups for parameter in group["params"]}
    assert {id(parameter) for parameter in step.parameters.values()} <= optimised
    if takes_over:
        assert torch.equal(step.parameters["classifier_bias"], torch.ones(2))


def test_a_step_trains_what_is_trainable_and_nothing_else():
    matcher = VSE.build()
    set_trainable(matcher, ("project",))
    stage = Stage(objective=Hinge(), optimiser=Optimiser(clip=0.5), batches=Batches(chunk=3))
    step = make_step(matcher, stage, CPU)
    optimised = {id(parameter) for group in step.optimiser.param_groups for parameter in group["params"]}
    assert optimised == {id(parameter) for parameter in matcher.project.parameters()}
    assert (step.clip, step.chunk, len(step.parameters), step.needs) == (0.5, 3, 0, ())


def test_the_model_decides_whether_weights_are_learned_or_solved_for():
    towers = {"text": GRUSettings(hidden=5, word=3), "image": FeatureSettings(shape=(6,)), "words": 9}
    assert type(make_step(VSE.build(), Stage(objective=Hinge()), CPU)) is Step
    solved = CCASettings(joint=2, **towers).build()
    assert type(make_step(solved, Stage(objective=Correlation(), epochs=1), CPU)) is ClosedFormStep
