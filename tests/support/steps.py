"""Batches of random features and texts, and training steps on them."""

import numpy as np
import torch

from diptych.data.sampling.batch import PairBatch
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.projected import Head, ProjectedSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.training.needs.need import find_need
from diptych.training.prepare import make_step
from diptych.training.recipe import Batches, Stage

CPU = torch.device("cpu")
TOWERS = {"joint": 5, "text": GRUSettings(hidden=5, word=3), "image": FeatureSettings(shape=(6,)), "words": 9}
MODELS = {
    "vse": VSESettings(**TOWERS),
    "order": OrderSettings(**TOWERS),
    "projected": ProjectedSettings(base=VSESettings(**TOWERS), head=Head(hidden=7, output=4)),
}


def random_batch(seed, pairs=11, images=7):
    """Several texts of some images; equal texts and common beginnings; lengths from 3."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, 7, pairs)
    ids = random.integers(4, 7, (pairs, int(lengths.max())))
    ids[:, 0] = 1
    ids[np.arange(ids.shape[1]) == lengths[:, None] - 1] = 2
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = 0
    distinct, image_of = np.unique(random.integers(0, images, pairs), return_inverse=True)
    assert len(distinct) < pairs
    return PairBatch(
        random.standard_normal((len(distinct), 6)), image_of, ids, lengths, np.arange(pairs), image_of + 100
    )


def build(settings, seed=0):
    torch.manual_seed(seed)
    return settings.build().double()


def step_for(matcher, objective, chunk, **optimiser):
    stage = Stage(objective=objective, batches=Batches(size=16, chunk=chunk), optimiser=optimiser)
    needs = [find_need(name)() for name in stage.objective.needs]
    step = make_step(matcher, stage, CPU, needs)
    step.parameters.double()
    return step


def loss_and_gradients(step, pairs):
    """The loss of a batch and the gradients of everything that is trained."""
    for parameter in (*step.matcher.parameters(), *step.parameters.values()):
        parameter.grad = None
    loss, _ = step.gradients(pairs)
    named = {**dict(step.matcher.named_parameters()), **dict(step.parameters.items())}
    return loss, {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
