import copy

import numpy as np
import pytest
import torch
from torch import nn

from diptych.data.sampling.batch import PairBatch
from diptych.errors import RecipeError
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.training.engine.optimiser import current_rate, make_optimiser, set_rate
from diptych.training.engine.step import Step
from diptych.training.recipe import Optimiser

CPU = torch.device("cpu")


def batch(seed, pairs=7, images=5):
    """Pairs of a few images, so that some share one; common beginnings; lengths from 2."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 7, pairs)
    ids = random.integers(4, 7, (pairs, int(lengths.max())))
    ids[:, 0] = 1
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = 0
    image_of = random.integers(0, images, pairs)
    distinct, image_of = np.unique(image_of, return_inverse=True)
    return PairBatch(
        random.standard_normal((len(distinct), 6)), image_of, ids, lengths, np.arange(pairs), image_of + 100
    )


def test_a_part_can_have_a_rate_of_its_own():
    image = CNNSettings(pixels=16, width=2)
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=9).build()
    optimiser = make_optimiser(matcher, Optimiser(rate=0.1, parts={"image": 0.5, "image.layers.0": 0.25}))
    set_rate(optimiser, 0.01)
    assert current_rate(optimiser) == pytest.approx(0.01)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in matcher.named_parameters():
        multiple = 0.25 if name.startswith("image.layers.0.") else 0.5 if name.startswith("image.") else 1
        assert rates[id(parameter)] == pytest.approx(0.01 * multiple)
    with pytest.raises(RecipeError, match=r"optimiser.parts: the model has no part 'imag'; did you mean 'image'"):
        make_optimiser(matcher, Optimiser(parts={"imag": 0.5}))


def two_branch(**settings):
    towers = {"image": FeatureSettings(shape=(6,)), "text": GRUSettings(hidden=5, word=3), "words": 9}
    return TwoBranchSettings(image_layers=(5, 4), text_layers=(5, 4), dropout=0.0, **towers, **settings)


@pytest.mark.parametrize(
    ("given", "momentum"),
    [({}, 0.9), ({"momentum": 0.5}, 0.5), ({"momentum": 0.0}, 0.0)],
    ids=["usual", "half", "none"],
)
def test_gradient_descent_with_momentum_and_decay_is_what_a_loop_does(given, momentum):
    torch.manual_seed(0)
    ours = two_branch().build().double().train()
    theirs = copy.deepcopy(ours)
    with torch.no_grad():
        for each in (*ours.parameters(), *theirs.parameters()):
            each.add_(0.1)  # biases and the scale of a batch norm would decay, if they did
    optimiser = make_optimiser(ours, Optimiser(name="sgd", rate=0.1, decay=0.05, clip=0.0, **given))
    step = Step(ours, Neighbourhood(margin=0.5), optimiser, CPU)
    velocity = {name: torch.zeros_like(weight) for name, weight in theirs.named_parameters()}
    matrices = {name for name, weight in theirs.named_parameters() if weight.dim() == 2}
    assert {name.split(".")[-1] for name in velocity.keys() - matrices} >= {"bias", "weight"}
    for seed in range(3):
        set_rate(optimiser, rate := 0.1 / (seed + 1))
        step(batch(seed))
        theirs.zero_grad()
        Step(theirs, Neighbourhood(margin=0.5), optimiser, CPU).gradients(batch(seed))
        with torch.no_grad():
            for name, weight in theirs.named_parameters():
                pull = weight.grad + (0.05 * weight if name in matrices else 0)
                velocity[name] = momentum * velocity[name] + pull
                weight.sub_(rate * velocity[name])
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-9, atol=1e-12)


def test_only_matrices_decay_those_of_the_objective_too():
    matcher = two_branch().build()
    learned = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(()))]
    optimiser = make_optimiser(matcher, Optimiser(decay=0.3, parts={"text_branch": 0.5}), learned)
    decays = {id(each): group["weight_decay"] for group in optimiser.param_groups for each in group["params"]}
    multiples = {id(each): group["multiple"] for group in optimiser.param_groups for each in group["params"]}
    for name, weight in matcher.named_parameters():
        assert decays[id(weight)] == (0.3 if weight.dim() > 1 else 0.0), name
        assert multiples[id(weight)] == (0.5 if name.startswith("text_branch.") else 1.0), name
    assert [decays[id(each)] for each in learned] == [0.3, 0.0, 0.0]
    assert [multiples[id(each)] for each in learned] == [1.0, 1.0, 1.0]
    assert len(decays) == len(list(matcher.parameters())) + len(learned)


def test_nesterov_is_handed_to_sgd():
    vse = two_branch().build()
    for wanted in (True, False):
        optimiser = make_optimiser(vse, Optimiser(name="sgd", nesterov=wanted))
        assert {group["nesterov"] for group in optimiser.param_groups} == {wanted}
