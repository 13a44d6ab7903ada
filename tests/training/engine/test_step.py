"""Cached gradients against plain ones, for every objective and model; what a temperature means to Adam."""

import copy
import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import normalize

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.extras import Extras
from diptych.errors import RecipeError
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.projected import Head, ProjectedSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.words import WordsSettings
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.extras import WithinScores
from diptych.objectives.hinge import Hinge
from diptych.objectives.mvn import MVN
from diptych.objectives.objective import Loss, Objective, ScoredPairs
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.step import Step
from diptych.training.engine.trainable import set_trainable
from diptych.training.needs.need import find_need
from diptych.training.prepare import make_step
from diptych.training.recipe import Batches, Optimiser, Stage
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.runs import journal

CPU = torch.device("cpu")
OBJECTIVES = {
    "hinge max": Hinge(),
    "hinge sum": Hinge(negatives="sum"),
    "hinge 0.5": Hinge(negatives=0.5),
    "hinge unmasked": Hinge(mask_same_group=False),
    "contrastive sum": Contrastive(),
    "contrastive max": Contrastive(negatives="max"),
    "contrastive margin": Contrastive(negatives="max", margin=0.2),
    "contrastive learned": Contrastive(learn_temperature=True),
    "mvn": MVN(),
    "mvn learned": MVN(learn_temperature=True),
}
TOWERS = {"joint": 5, "text": GRUSettings(hidden=5, word=3), "image": FeatureSettings(shape=(6,)), "words": 9}
MODELS = {
    "vse": VSESettings(**TOWERS),
    "order": OrderSettings(**TOWERS),
    "projected": ProjectedSettings(base=VSESettings(**TOWERS), head=Head(hidden=7, output=4)),
}
WITH_DROPOUT = VSESettings(
    joint=8, text=WordsSettings(hidden=8, word=6, dropout=0.4), image=FeatureSettings(shape=(6,)), words=9, dropout=0.5
)


def batch(seed, pairs=11, images=7):
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


def made(settings, seed=0):
    torch.manual_seed(seed)
    return settings.build().double()


def step_of(matcher, objective, chunk, **optimiser):
    stage = Stage(objective=objective, batches=Batches(size=16, chunk=chunk), optimiser=optimiser)
    needs = [find_need(name)() for name in stage.objective.needs]
    step = make_step(matcher, stage, CPU, needs)
    step.parameters.double()
    return step


def gradients(step, pairs):
    """The loss of a batch and the gradients of everything that is trained."""
    for parameter in (*step.matcher.parameters(), *step.parameters.values()):
        parameter.grad = None
    loss, _ = step.gradients(pairs)
    named = {**dict(step.matcher.named_parameters()), **dict(step.parameters.items())}
    return loss, {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}


def assert_equal_gradients(ours, theirs, tolerance=1e-9):
    assert ours.keys() == theirs.keys()
    assert any(gradient.abs().max() > 1e-3 for gradient in theirs.values()), "this test would prove nothing"
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=tolerance, atol=tolerance)


def plain_step(matcher, optimiser, made):
    """The step as a textbook writes it: an image a pair, torch's own GRU, loops over pairs for the loss."""
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
        made = batch(seed)
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
        Step(matcher, Hinge(), optimiser, CPU, clip)(batch(0))
        return torch.cat([parameter.grad.flatten() for parameter in matcher.parameters()]).norm().item()

    assert norm(0) > 0.5
    assert norm(0.5) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_gradients_in_chunks_are_the_plain_ones(objective, model):
    matcher, pairs = made(MODELS[model]), batch(0)
    plain_loss, plain = gradients(step_of(matcher, OBJECTIVES[objective], None), pairs)
    assert plain.keys() >= {name for name, _ in matcher.named_parameters()}
    assert ("log_temperature" in plain) == ("learned" in objective)
    for chunk in (1, 3, 7) if model == "vse" else (3, 7):  # of one, everything is said more often
        loss, ours = gradients(step_of(matcher, OBJECTIVES[objective], chunk), pairs)
        assert_equal_gradients(ours, plain)
        for name, term in plain_loss.terms.items():
            assert loss.terms[name].item() == pytest.approx(term.item(), rel=1e-9, abs=1e-12)


def test_gradients_are_added_to_those_that_are_there():
    matcher = made(MODELS["vse"])
    step = step_of(matcher, Contrastive(), 3)
    _, once = gradients(step, batch(0))
    once = {name: gradient.clone() for name, gradient in once.items()}
    step.gradients(batch(0))
    for name, parameter in matcher.named_parameters():
        torch.testing.assert_close(parameter.grad, 2 * once[name])


def one_graph(matcher, objective, pairs, chunk):
    """The same chunks in the same order, in one graph: images as they come, texts in the order of their words."""
    order = sorted(range(len(pairs.ids)), key=lambda row: pairs.ids[row].tolist())
    images = [matcher.encode_images(torch.from_numpy(part)) for part in cut(pairs.images, chunk)]
    texts = []
    for rows in cut(np.array(order), chunk):
        length = int(pairs.lengths[rows].max())
        texts.append(
            matcher.encode_texts(
                Tokens(torch.from_numpy(pairs.ids[rows][:, :length]), torch.from_numpy(pairs.lengths[rows]))
            )
        )
    image_of, groups = torch.from_numpy(pairs.image_of[order]), torch.from_numpy(pairs.groups[order])
    images, texts = torch.cat(images)[image_of], torch.cat(texts)
    within = WithinScores(matcher.score(images, images), matcher.score(texts, texts))
    scored = ScoredPairs(matcher.score(images, texts), groups[:, None] == groups[None, :], Extras(within))
    return objective(scored)


def cut(rows, chunk):
    return [rows[start : start + chunk] for start in range(0, len(rows), chunk)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
@pytest.mark.parametrize("objective", ["hinge max", "hinge 0.5", "contrastive sum", "contrastive margin", "mvn"])
def test_dropout_is_replayed(objective, chunk):
    matcher = made(WITH_DROPOUT).train()
    pairs = batch(4)
    torch.manual_seed(5)
    matcher.zero_grad()
    expected = one_graph(matcher, OBJECTIVES[objective], pairs, chunk)
    after = torch.get_rng_state()
    expected.total.backward()
    plain = {name: parameter.grad.clone() for name, parameter in matcher.named_parameters()}

    torch.manual_seed(5)
    step = step_of(matcher, OBJECTIVES[objective], chunk)
    loss, ours = gradients(step, pairs)
    assert torch.equal(torch.get_rng_state(), after), "one pass over the chunks draws what two passes draw"
    assert loss.total.item() == pytest.approx(expected.total.item(), rel=1e-9)
    assert_equal_gradients(ours, plain)

    ours = {name: gradient.clone() for name, gradient in ours.items()}
    _, others = gradients(step, pairs)  # from another random state
    differs = (not torch.allclose(ours[name], others[name]) for name in ours)
    assert any(differs), "the model has no active dropout: this test would prove nothing"


@pytest.mark.parametrize("parts", [("text",), ("project",), ("head_images",)], ids=" ".join)
def test_a_side_without_anything_to_train_is_no_obstacle(parts):
    model = "projected" if parts == ("head_images",) else "vse"
    matcher = made(MODELS[model])
    set_trainable(matcher, parts)
    _, plain = gradients(step_of(matcher, Contrastive(), None), batch(0))
    assert all(name.startswith(parts[0]) for name in plain)
    for chunk in (1, 3):
        _, ours = gradients(step_of(matcher, Contrastive(), chunk), batch(0))
        assert_equal_gradients(ours, plain)


@pytest.mark.parametrize("chunk", [11, 12, 1000])
def test_a_chunk_that_holds_the_batch_is_the_plain_step_bit_for_bit(chunk):
    pairs, ends = batch(1), []
    for size in (None, chunk):
        matcher = made(WITH_DROPOUT).train()
        step = step_of(matcher, Contrastive(), size)
        torch.manual_seed(3)
        for _ in range(2):
            step(pairs)
        ends.append((matcher.state_dict(), torch.get_rng_state()))
    assert all(torch.equal(value, ends[1][0][name]) for name, value in ends[0][0].items())
    assert torch.equal(ends[0][1], ends[1][1])


def test_a_batch_without_negatives_in_chunks_moves_nothing():
    pairs = batch(0)
    pairs = replace(pairs, groups=np.zeros_like(pairs.groups))
    for objective in (objective for name, objective in OBJECTIVES.items() if name != "hinge unmasked"):
        loss, found = gradients(step_of(made(MODELS["vse"]), objective, 3), pairs)
        assert loss.total.item() == pytest.approx(0, abs=1e-12)
        assert all(gradient.abs().max() < 1e-12 for gradient in found.values())


def test_a_step_in_chunks_clips_and_moves_like_the_plain_one():
    ends = []
    for chunk in (None, 4):
        matcher = made(MODELS["projected"])
        step = step_of(matcher, MVN(learn_temperature=True), chunk, rate=0.01, clip=0.1)
        for seed in range(4):
            step(batch(seed))
        ends.append({**matcher.state_dict(), **step.parameters.state_dict()})
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-7, atol=1e-9)
    assert ends[0]["log_temperature"].item() != pytest.approx(math.log(0.1), abs=1e-3)


def test_mvn_sees_images_among_images_and_texts_among_texts():
    matcher, pairs = made(MODELS["vse"]), batch(2)
    loss, _ = gradients(step_of(matcher, MVN(temperature=0.5), None), pairs)
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
    matcher = made(MODELS["projected"])
    optimiser = torch.optim.Adam(matcher.parameters(), lr=0.01, eps=1e-30)
    step = Step(matcher, Contrastive(negatives="max", margin=0.2, temperature=temperature), optimiser, CPU, clip)
    start = copy.deepcopy(matcher.state_dict())
    for seed in range(6):
        step(batch(seed))
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

    def __call__(self, batch):
        return Loss({"all": batch.scores.square().sum()})

    def has_collapsed(self, batch, total):
        return False


def test_an_objective_that_needs_all_scores_trains_on_whole_batches():
    matcher = made(MODELS["vse"])
    assert not Whole().supports_chunks
    _, found = gradients(step_of(matcher, Whole(), None), batch(0))  # whole batches are as good as ever
    assert found.keys() == dict(matcher.named_parameters()).keys()


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_summary_of_a_batch_in_chunks_is_that_of_the_whole(chunk):
    matcher, pairs = made(MODELS["vse"]), batch(0)
    _, whole = step_of(matcher, Hinge(), None).gradients(pairs)
    _, ours = step_of(matcher, Hinge(), chunk).gradients(pairs)
    assert (ours.lowest, ours.highest) == pytest.approx((whole.lowest, whole.highest), abs=1e-12)
    assert sorted(ours.positives.tolist()) == sorted(whole.positives.tolist())
    assert max(whole.positives.tolist()) > 1


TINY = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "stage.1.batches.size=16"]


@pytest.fixture(scope="module")
def pictures():
    return make_scenes(train=24, val=6, test=6, texts=2)


@pytest.fixture(scope="module")
def features(pictures):
    """A few colours of each drawn scene as stored features."""
    rows = [np.asarray(picture.load().resize((2, 2))).reshape(-1) / 255 for picture in pictures.pictures]
    return replace(pictures, pictures=None, features=Features([np.array(rows, np.float32)]))


def test_a_recipe_that_cuts_a_batch_norm_is_refused_before_anything_is_written(pictures, tmp_path):
    changes = [*TINY, "model.image.width=2", "model.image.pixels=32", "stage.2.batches.chunk=4"]
    with pytest.raises(RecipeError, match=r"^stage\.2\.batches\.chunk: image\.layers\.1 .*freeze it") as caught:
        train(load_recipe("scenes", changes), pictures, tmp_path / "run", device="cpu")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def every_warning():
    """Torch gives some warnings once a process, which is the first test's; here they are given each time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("every_warning")
def test_a_training_in_chunks_with_dropout_and_a_learned_temperature_resumes_bit_for_bit(features, tmp_path):
    changes = [
        *TINY,
        "model.text={name='words', hidden=16, word=8, dropout=0.3}",
        "model.dropout=0.2",
        "stage.1.batches.chunk=5",
        "stage.1.objective={name='contrastive', temperature=0.2, learn_temperature=true}",
        "stage.1.optimiser.rate=0.01",
        "stage.1.epochs=3",
        "text.threshold=1",
    ]
    recipe = load_recipe("vsepp", changes)
    whole = train(recipe, features, tmp_path / "whole", device="cpu", workers=0)
    callback = RecordingCallback((2, 6))
    for turn in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, features, tmp_path / "cut", resume=turn > 0, device="cpu", workers=0, callback=callback)
    train(recipe, features, tmp_path / "cut", resume=True, device="cpu", workers=1, callback=callback)
    assert callback.steps == 9
    for name in ("best/weights.safetensors", "last/snapshot.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()
    assert journal(tmp_path / "cut") == journal(whole)
    logarithms = [line["learned"]["log_temperature"] for line in journal(whole)]
    assert logarithms[-1] == load_file(snapshot_path(whole))["objective.log_temperature"].item()
    assert len({math.log(0.2), *logarithms}) == 4  # it moved in every epoch
