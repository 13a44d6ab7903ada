"""What an objective is given of a batch, against scores of one image with one text at a time."""

import copy
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import PrivateAttr

from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.extras import Extras
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.data.sampling.neighbours import QueryDirections
from diptych.models.matchers.cca import CCASettings
from diptych.models.matchers.similarity_net import SimilarityNetSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.tfidf import TfidfSettings
from diptych.objectives.correlation import Correlation
from diptych.objectives.extras import NegativeScores, PairRoles, WithinScores
from diptych.objectives.logistic import Logistic
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.objectives.objective import Loss, Objective
from diptych.training.engine.step import ClosedFormStep
from diptych.training.needs.need import find_need
from diptych.training.needs.negatives import Negatives
from diptych.training.needs.roles import Roles
from diptych.training.prepare import make_step
from diptych.training.recipe import Batches, Stage

CPU = torch.device("cpu")
BRANCHES = {
    "image": FeatureSettings(shape=(6,)),
    "text": GRUSettings(hidden=5, word=3),
    "image_layers": (24, 4),
    "text_layers": (24, 4),
    "dropout": 0.0,
    "batch_norm": False,
    "words": 9,
}
MODELS = {"distance": TwoBranchSettings(**BRANCHES), "network": SimilarityNetSettings(**BRANCHES, fused=(3,))}


class Spy(Objective):
    """Keeps what it is given; its loss weighs every score by a number of its own, so that none may be mixed up."""

    name: Literal["spy"] = "spy"
    within: bool = False
    _given: list[Any] = PrivateAttr(default_factory=list)

    @property
    def needs(self):
        return (*(("within",) if self.within else ()), "negatives", "roles")

    def loss(self, batch):
        self._given.append(batch)
        return Loss({"all": weighed(batch.scores)})

    def has_collapsed(self, batch, total):
        return False


class PairsSpy(Spy):
    scores_all_pairs: ClassVar[bool] = False

    def loss(self, batch):
        self._given.append(batch)
        negatives = batch.extras[NegativeScores]
        sides = [side for side in (batch.scores, negatives.images, negatives.texts) if side is not None]
        return Loss({"all": weighed(torch.cat(sides, dim=1))})


def weighed(scores):
    there = scores[scores > -torch.inf]
    return (there * torch.arange(1, len(there) + 1).sin().to(there)).sum()


def made(model="distance", seed=0):
    torch.manual_seed(seed)
    return MODELS[model].build().double()


@st.composite
def batches(draw, kinds=("none", "images", "texts", "both")):
    """Images and texts in several pairs each, rivals of both kinds behind them, some of which lack."""
    random = np.random.default_rng(draw(st.integers(0, 999)))
    pairs, kind = draw(st.integers(1, 6)), draw(st.sampled_from(kinds))
    groups = random.integers(0, 3, pairs)
    repeated = draw(st.booleans())
    image_of = np.unique(2 * groups + random.integers(0, 2, pairs), return_inverse=True)[1]
    drawn = 2 * groups + random.integers(0, 2, pairs) if repeated else np.arange(pairs)
    order = list(dict.fromkeys(drawn.tolist()))  # texts stand in the order of the pairs
    text_of = np.array([order.index(text) for text in drawn.tolist()])
    images = int(image_of.max()) + 1 + (2 if kind in ("images", "both") else 0)
    texts = int(text_of.max()) + 1 + (2 if kind in ("texts", "both") else 0)
    lengths = random.integers(2, 6, texts)
    ids = random.integers(4, 9, (texts, 7))
    ids[np.arange(7) >= lengths[:, None]] = 0
    negatives = DrawnNegatives(
        random.integers(-1, images, (pairs, 3)) if kind in ("images", "both") else None,
        random.integers(-1, texts, (pairs, 2)) if kind in ("texts", "both") else None,
    )
    extras = Extras() if kind == "none" else Extras(negatives)
    if draw(st.booleans()):
        extras = extras.add(QueryDirections(random.random((pairs, 2)) < 0.5))
    return PairBatch(random.standard_normal((images, 6)), image_of, ids, lengths, text_of, groups, extras=extras)


class Plain:
    """Scores by encoding one image and one text and nothing else, each once."""

    def __init__(self, matcher, batch):
        self.matcher, self.batch = matcher, batch
        self.text_of = batch.text_of
        self.image, self.text = cache(self._image), cache(self._text)

    def _image(self, row):
        return self.matcher.encode_images(torch.from_numpy(self.batch.images[row : row + 1]))

    def _text(self, row):
        length = self.batch.lengths[row]
        ids = torch.from_numpy(self.batch.ids[row : row + 1, :length])
        return self.matcher.encode_texts(Tokens(ids, torch.tensor([length])))

    def score(self, image, text):
        if image < 0 or text < 0:
            return torch.tensor(-torch.inf, dtype=torch.float64)
        return self.matcher.score(self.image(image), self.text(text))[0, 0]

    def crossed(self):
        rows = [[self.score(image, text) for text in self.text_of] for image in self.batch.image_of]
        return torch.stack([torch.stack(row) for row in rows])

    def rivals(self):
        """The scores of the rivals of each pair: with its text, and with its image."""
        rivals = self.batch.extras[DrawnNegatives]
        of_images = of_texts = None
        if rivals.images is not None:
            rows = zip(rivals.images, self.text_of, strict=True)
            of_images = torch.stack([torch.stack([self.score(image, text) for image in row]) for row, text in rows])
        if rivals.texts is not None:
            rows = zip(rivals.texts, self.batch.image_of, strict=True)
            of_texts = torch.stack([torch.stack([self.score(image, text) for text in row]) for row, image in rows])
        return of_images, of_texts


def trained(matcher, objective, batch):
    """What the objective was given, the loss, the summary, and the gradients of all weights."""
    needs = [find_need(name)() for name in objective.needs]
    step = make_step(matcher, Stage(objective=objective), CPU, needs)
    matcher.zero_grad()
    loss, summary = step.gradients(batch)
    return step.objective, loss, summary, gradients(matcher)


def gradients(matcher):
    return {name: weight.grad.clone() for name, weight in matcher.named_parameters() if weight.grad is not None}


def assert_same_gradients(ours, matcher, loss):
    matcher.zero_grad()
    loss.backward()
    theirs = gradients(matcher)
    for name in ours.keys() | theirs.keys():  # what no score depends on has none, or zeros
        nothing = torch.zeros(())
        torch.testing.assert_close(ours.get(name, nothing) + 0, theirs.get(name, nothing) + 0, rtol=1e-8, atol=1e-10)


def close(found, expected):
    if expected is None:
        assert found is None
    else:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=15)
@given(batches(), st.booleans())
def test_all_images_are_scored_with_all_texts_of_the_pairs(batch, within):
    matcher = made()
    spy, loss, _, ours = trained(matcher, Spy(within=within), batch)
    (given_scores,) = spy._given
    plain = Plain(matcher, batch)
    expected = plain.crossed()
    close(given_scores.scores, expected)
    assert given_scores.positives.tolist() == [[one == other for other in batch.groups] for one in batch.groups]
    images, texts = batch.image_of.tolist(), plain.text_of.tolist()
    roles = given_scores.extras[PairRoles]
    for first, of in ((roles.is_first_image, images), (roles.is_first_text, texts)):
        assert first.tolist() == [item not in of[:pair] for pair, item in enumerate(of)]
    directions = batch.extras.get(QueryDirections)
    is_query = [[True, True]] * len(batch) if directions is None else directions.is_query.tolist()
    assert torch.stack([roles.image_is_query, roles.text_is_query], 1).tolist() == is_query
    negatives = given_scores.extras.get(NegativeScores)
    if batch.extras.get(DrawnNegatives) is None:
        assert negatives is None
    else:
        for found, wanted in zip((negatives.images, negatives.texts), plain.rivals(), strict=True):
            close(found, wanted)
    if within:
        scored = given_scores.extras[WithinScores]
        for found, of, encode in ((scored.images, images, plain.image), (scored.texts, texts, plain.text)):
            rows = [[matcher.score(encode(one), encode(other)).item() for other in of] for one in of]
            close(found, torch.tensor(rows, dtype=torch.float64))
    else:
        assert given_scores.extras.get(WithinScores) is None
    assert loss.total.item() == pytest.approx(weighed(expected).item())
    assert_same_gradients(ours, matcher, weighed(expected))


@settings(max_examples=15)
@given(batches(("images", "texts", "both")), st.sampled_from(list(MODELS)))
def test_an_objective_of_pairs_sees_each_pair_and_then_its_rivals(batch, model):
    matcher = made(model)
    spy, loss, summary, ours = trained(matcher, PairsSpy(), batch)
    (given_scores,) = spy._given
    plain = Plain(matcher, batch)
    own = torch.stack([plain.score(i, t) for i, t in zip(batch.image_of, plain.text_of, strict=True)])
    expected = torch.cat([own[:, None], *(side for side in plain.rivals() if side is not None)], dim=1)
    close(given_scores.scores, own[:, None])
    assert given_scores.positives.tolist() == [[True]] * len(batch)
    assert (summary.lowest, summary.highest) == pytest.approx((own.min().item(), own.max().item()))
    assert loss.total.item() == pytest.approx(weighed(expected).item())
    assert_same_gradients(ours, matcher, weighed(expected))


def hinges(own, others, margin, most):
    found = sorted(((margin - own + other).clamp(min=0) for other in others), reverse=True)
    return sum(found[:most], torch.zeros((), dtype=torch.float64))


@settings(max_examples=15)
@given(batches(("none", "images", "both")))
def test_the_two_branch_loss_of_a_batch_is_that_of_a_loop_over_triplets(batch):
    """Equation 6 with Algorithm 1: phrases look among regions of their photo, regions among the batch's phrases."""
    matcher, count = made(seed=3), len(batch)
    drawn, directions = batch.extras.get(DrawnNegatives), batch.extras.get(QueryDirections)
    if drawn is not None:
        batch = replace(batch, extras=batch.extras.add(replace(drawn, texts=None)))
    objective = Neighbourhood(margin=0.4, most=2, image_to_text=1.5, text_to_image=3.0)
    _, loss, _, ours = trained(matcher, objective, batch)
    plain = Plain(matcher, batch)
    scores = plain.crossed()
    of_rivals = None if drawn is None else plain.rivals()[0]
    expected = torch.zeros((), dtype=torch.float64)
    for pair in range(count):
        asks = (True, True) if directions is None else directions.is_query[pair]
        others = [other for other in range(count) if batch.groups[other] != batch.groups[pair]]
        if asks[0]:
            texts = {plain.text_of[other]: scores[pair, other] for other in others}  # each text once
            expected = expected + 1.5 / count * hinges(scores[pair, pair], texts.values(), 0.4, 2)
        if asks[1]:
            images = {batch.image_of[other]: scores[other, pair] for other in others}
            rivals = images.values() if of_rivals is None else of_rivals[pair]
            expected = expected + 3.0 / count * hinges(scores[pair, pair], rivals, 0.4, 2)
    assert loss.total.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-12)
    if expected.requires_grad:
        assert_same_gradients(ours, matcher, expected)


def with_many_negatives(batch, seed):
    """The batch with 9 drawn images for each pair, of 12 behind those of the pairs, some of which lack."""
    random = np.random.default_rng(seed)
    pairs = int(batch.image_of.max()) + 1
    images = np.concatenate([batch.images[:pairs], random.standard_normal((12, 6))])
    drawn = np.stack([pairs + random.permutation(12)[:9] for _ in range(len(batch))])
    drawn[random.random(drawn.shape) < 0.2] = -1
    return replace(batch, images=images, extras=batch.extras.add(DrawnNegatives(drawn)))


class Counting:
    """Counts the images that a matcher encodes with gradients, and without."""

    def __init__(self, matcher):
        self.counts = {True: 0, False: 0}
        matcher.image_branch.register_forward_pre_hook(self.count)

    def count(self, _, inputs):
        self.counts[torch.is_grad_enabled()] += len(inputs[0])


def stepped(matcher, objective, needs, batch):
    """The loss and the gradients of one step."""
    step = make_step(matcher, Stage(objective=objective), CPU, needs)
    matcher.zero_grad()
    loss, _ = step.gradients(batch)
    return loss.total, gradients(matcher)


@settings(max_examples=25)
@given(batches(("none",)), st.integers(0, 99), st.integers(1, 8), st.sampled_from([0.01, 0.4, 2.0]))
def test_a_first_pass_over_all_negatives_changes_neither_the_loss_nor_the_gradients(batch, seed, most, margin):
    batch = with_many_negatives(batch, seed)
    objective = Neighbourhood(margin=margin, most=most, image_to_text=1.5, text_to_image=3.0)
    matcher = made(seed=3)
    roles = Roles()
    plain_loss, plain = stepped(matcher, objective, [Negatives(), roles], batch)
    counted = Counting(matcher)
    loss, found = stepped(matcher, objective, [Negatives(objective.need_options("negatives")), roles], batch)
    assert counted.counts[False] == len(batch.images)
    assert counted.counts[True] <= int(batch.image_of.max()) + 1 + most * len(batch)
    torch.testing.assert_close(loss, plain_loss, rtol=1e-12, atol=1e-14)
    assert found.keys() == plain.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, plain[name], rtol=1e-9, atol=1e-12)


@settings(max_examples=15)
@given(batches(("none",)), st.integers(0, 99), st.integers(1, 8))
def test_with_batch_norm_the_mini_batch_is_what_algorithm_1_keeps(batch, seed, most):
    """Each triplet is looked at as in evaluation; then the step is that of the pairs and the kept negatives."""
    batch, count = with_many_negatives(batch, seed), len(batch)
    torch.manual_seed(5)
    matcher = TwoBranchSettings(**{**BRANCHES, "batch_norm": True}).build().double()
    for buffer in matcher.buffers():
        buffer.add_(1)
    plain, drawn = copy.deepcopy(matcher), batch.extras[DrawnNegatives]
    looking = Plain(plain.eval(), batch)
    kept = np.full((count, most), -1)
    for pair, row in enumerate(drawn.images):
        scores = {image: looking.score(image, looking.text_of[pair]) for image in row if image >= 0}
        hardest = sorted(scores, key=scores.get, reverse=True)[:most]
        kept[pair, : len(hardest)] = hardest
    objective = Neighbourhood(margin=0.4, most=most)
    options = objective.need_options("negatives")
    needed = np.unique(np.concatenate([batch.image_of, kept[kept >= 0]]))
    by_hand = replace(
        batch,
        images=batch.images[needed],
        extras=batch.extras.add(DrawnNegatives(np.where(kept >= 0, np.searchsorted(needed, kept), -1))),
    )
    expected = stepped(plain.train(), objective, [Negatives(), Roles()], by_hand)
    found = stepped(matcher.train(), objective, [Negatives(options), Roles()], batch)
    assert matcher.image_branch.training
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(matcher.state_dict(), plain.state_dict())  # the running statistics


@settings(max_examples=15)
@given(batches(("images", "texts", "both")))
def test_the_similarity_network_asks_pair_by_pair(batch):
    matcher = made("network")
    _, loss, _, ours = trained(matcher, Logistic(balanced=False), batch)
    plain = Plain(matcher, batch)
    expected = torch.zeros((), dtype=torch.float64)
    for image, text in zip(batch.image_of, plain.text_of, strict=True):
        expected = expected + (1 + (-plain.score(image, text)).exp()).log()
    for side in plain.rivals():
        for score in () if side is None else side[side > -torch.inf]:
            expected = expected + (1 + score.exp()).log()
    assert loss.total.item() == pytest.approx(expected.item() / len(batch))
    assert_same_gradients(ours, matcher, expected / len(batch))


def test_precomputed_features_of_a_fitted_tower_are_used_as_they_are():
    settings = TwoBranchSettings(**{**BRANCHES, "text": TfidfSettings()})
    torch.manual_seed(0)
    matcher = settings.build().double()  # never fitted: without the features every text would be the same
    random = np.random.default_rng(0)
    features = random.standard_normal((3, matcher.text.size))
    batch = PairBatch(
        random.standard_normal((3, 6)),
        np.arange(3),
        np.full((3, 4), 5),
        np.full(3, 4),
        np.arange(3),
        np.arange(3),
        text_features=features,
    )
    spy, *_ = trained(matcher, Spy(), batch)
    texts = matcher.text_branch(torch.from_numpy(features))
    expected = -torch.cdist(matcher.encode_images(torch.from_numpy(batch.images)), texts)
    torch.testing.assert_close(spy._given[0].scores, expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=15)
@given(st.lists(batches(), min_size=3, max_size=5))
def test_a_solved_stage_is_cca_of_all_pairs_at_once(parts):
    """Whatever the batches are, with rivals behind them and texts in several pairs."""
    torch.manual_seed(0)
    matcher, direct = (
        CCASettings(
            joint=2, image=FeatureSettings(shape=(6,)), text=GRUSettings(hidden=5, word=3), words=9, regularisation=0.1
        )
        .build()
        .double()
        for _ in range(2)
    )
    direct.load_state_dict(matcher.state_dict())
    step = make_step(matcher, Stage(objective=Correlation(), batches=Batches(size=4), epochs=1), CPU)
    assert isinstance(step, ClosedFormStep)
    images, texts = [], []
    for batch in parts:
        loss, summary = step(batch)
        assert loss.total.item() == summary.lowest == summary.highest == 0
        plain = Plain(matcher, batch)
        images += [torch.from_numpy(batch.images[row]) for row in batch.image_of]
        for row in plain.text_of:
            ids = torch.from_numpy(batch.ids[row : row + 1, : batch.lengths[row]])
            texts.append(matcher.text(Tokens(ids, torch.from_numpy(batch.lengths[row : row + 1])))[0].detach())
    for side in (images, texts):
        assume(len({tuple(vector.tolist()) for vector in side}) > 3)  # fewer correlate in fewer than two directions
    direct.accumulate_vectors(torch.stack(images), torch.stack(texts))
    (solution,) = direct.solutions()
    direct.adopt(solution)
    before = matcher.image_projection.weight.clone()
    choice = step.finish_epoch("rsum", lambda: {"rsum": 1.0})
    assert choice.kept == 0.1
    assert not torch.equal(matcher.image_projection.weight, before)
    torch.testing.assert_close(matcher.correlations, direct.correlations, rtol=1e-6, atol=1e-8)
    probe = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours, theirs = (each.encode_images(probe) for each in (matcher, direct))
    torch.testing.assert_close((ours * theirs).sum(1).abs(), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-6)
    assert direct.correlations.min() > 0
