"""One training step against a plain loop, its clipping, and what a temperature means to Adam."""

import copy
import math
from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.hinge import Hinge
from diptych.objectives.mvn import MVN
from diptych.objectives.objective import Loss, Objective
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.step import Step
from diptych.training.recipe import Optimiser
from support.steps import CPU, MODELS, build, loss_and_gradients, random_batch, step_for


def plain_step(matcher, optimiser, made):
    """The step as in a textbook: one image per pair, torch's own GRU, loops over pairs for the loss."""
    images = torch.from_numpy(made.images[made.image_of])
    image = normalize(images @ matcher.project.weight.T + matcher.project.bias, dim=1)
    text = normalize(matcher.text.plain(Tokens(torch.from_numpy(made.ids), torch.from_numpy(made.lengths))), dim=1)
    loss = torch.zeros((), dtype=torch.float64)
    for k in range(len(made.groups)):
        own = image[k] @ text[k]
        others = [m for m in range(len(made.groups)) if made.groups[m] != made.groups[k]]
        if others:
            loss = loss + torch.stack([(0.2 + image[k] @ text[m] - own).clamp(min=0) for m in others]).max()
            loss = loss + torch.stack([(0.2 + image[m] @ text[k] - own).clamp(min=0) for m in others]).max()
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(matcher.parameters(), 2.0)
    optimiser.step()
    return loss.item()


def test_the_step_equals_a_plain_loop():
    torch.manual_seed(0)
    settings = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9)
    ours = settings.build().double()
    theirs = copy.deepcopy(ours)
    our_optimiser = make_optimiser(ours, Optimiser(rate=0.01))
    step = Step(ours, Hinge(), our_optimiser, CPU, clip=2.0)
    their_optimiser = torch.optim.Adam(theirs.parameters(), lr=0.01)
    start = copy.deepcopy(ours.state_dict())
    for seed in range(5):
        made = random_batch(seed)
        loss, _ = step(made)
        assert loss.total.item() == pytest.approx(plain_step(theirs, their_optimiser, made), abs=1e-10)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-8, atol=1e-10)
        assert not torch.equal(value, start[name]), f"{name} did not move: this test would prove nothing"


def test_the_gradient_is_clipped():
    torch.manual_seed(0)
    matcher = (
        VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9)
        .build()
        .double()
    )
    optimiser = make_optimiser(matcher, Optimiser())

    def norm(clip):
        Step(matcher, Hinge(), optimiser, CPU, clip)(random_batch(0))
        return torch.cat([parameter.grad.flatten() for parameter in matcher.parameters()]).norm().item()

    assert norm(0) > 0.5
    assert norm(0.5) == pytest.approx(0.5, rel=1e-4)


def test_mvn_sees_images_among_images_and_texts_among_texts():
    matcher, pairs = build(MODELS["vse"]), random_batch(2)
    loss, _ = loss_and_gradients(step_for(matcher, MVN(temperature=0.5), None), pairs)
    images = matcher.encode_images(torch.from_numpy(pairs.images)).tolist()
    texts = matcher.encode_texts(Tokens(torch.from_numpy(pairs.ids), torch.from_numpy(pairs.lengths))).tolist()
    count, expected = len(texts), 0.0
    for k in range(count):
        image, text = images[pairs.image_of[k]], texts[k]
        others = [m for m in range(count) if pairs.groups[m] != pairs.groups[k]]
        own = math.exp(dot(image, text) / 0.5)
        seen_by_image = [texts[m] for m in others] + [images[pairs.image_of[m]] for m in others]
        seen_by_text = [images[pairs.image_of[m]] for m in others] + [texts[m] for m in others]
        for anchor, seen in ((image, seen_by_image), (text, seen_by_text)):
            expected -= math.log(own / math.fsum([own, *(math.exp(dot(anchor, other) / 0.5) for other in seen)]))
    assert loss.total.item() == pytest.approx(expected / count, rel=1e-10)


def dot(one, other):
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def trained_with(temperature, clip):
    """Weights after some steps of max of negatives with margin, by an Adam that adds next to nothing to its root."""
    matcher = build(MODELS["projected"])
    optimiser = torch.optim.Adam(matcher.parameters(), lr=0.01, eps=1e-30)
    step = Step(matcher, Contrastive(negatives="max", margin=0.2, temperature=temperature), optimiser, CPU, clip)
    start = copy.deepcopy(matcher.state_dict())
    for seed in range(6):
        step(random_batch(seed))
    end = matcher.state_dict()
    return torch.cat([(end[name] - start[name]).flatten() for name in end])


def test_with_a_margin_the_temperature_means_nothing_to_adam_until_the_gradient_is_clipped():
    cold, warm = trained_with(0.05, clip=0), trained_with(1.0, clip=0)
    assert cold.abs().max() > 0.02
    torch.testing.assert_close(cold, warm, rtol=0, atol=1e-9)
    cold, warm = trained_with(0.05, clip=2.0), trained_with(1.0, clip=2.0)
    assert (cold - warm).abs().max() > 1e-4


class Whole(Objective):
    """An objective that does not ask query by query."""

    name: Literal["whole"] = "whole"

    def loss(self, batch):
        return Loss({"all": batch.scores.square().sum()})

    def has_collapsed(self, batch, total):
        return False


def test_an_objective_that_needs_all_scores_trains_on_whole_batches():
    matcher = build(MODELS["vse"])
    assert not Whole().supports_chunks
    _, found = loss_and_gradients(
        step_for(matcher, Whole(), None), random_batch(0)
    )  # whole batches are as good as ever
    assert found.keys() == dict(matcher.named_parameters()).keys()
