"""Gradients of a batch in chunks against those of the whole batch, for every objective and model."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.sampling.extras import Extras
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.words import WordsSettings
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.extras import WithinScores
from diptych.objectives.hinge import Hinge
from diptych.objectives.mvn import MVN
from diptych.objectives.objective import ScoredPairs
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.recipes import SMALL
from support.runs import journal
from support.steps import MODELS, build, loss_and_gradients, random_batch, step_for

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


WITH_DROPOUT = VSESettings(
    joint=8, text=WordsSettings(hidden=8, word=6, dropout=0.4), image=FeatureSettings(shape=(6,)), words=9, dropout=0.5
)


def assert_equal_gradients(ours, theirs, tolerance=1e-9):
    assert ours.keys() == theirs.keys()
    assert any(gradient.abs().max() > 1e-3 for gradient in theirs.values()), "this test would prove nothing"
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_gradients_in_chunks_are_the_plain_ones(objective, model):
    matcher, pairs = build(MODELS[model]), random_batch(0)
    plain_loss, plain = loss_and_gradients(step_for(matcher, OBJECTIVES[objective], None), pairs)
    assert plain.keys() >= {name for name, _ in matcher.named_parameters()}
    assert ("log_temperature" in plain) == ("learned" in objective)
    for chunk in (1, 3, 7) if model == "vse" else (3, 7):  # single items are the slowest
        loss, ours = loss_and_gradients(step_for(matcher, OBJECTIVES[objective], chunk), pairs)
        assert_equal_gradients(ours, plain)
        for name, term in plain_loss.terms.items():
            assert loss.terms[name].item() == pytest.approx(term.item(), rel=1e-9, abs=1e-12)


def test_gradients_are_added_to_those_that_are_there():
    matcher = build(MODELS["vse"])
    step = step_for(matcher, Contrastive(), 3)
    _, once = loss_and_gradients(step, random_batch(0))
    once = {name: gradient.clone() for name, gradient in once.items()}
    step.gradients(random_batch(0))
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
    return objective.loss(scored)


def cut(rows, chunk):
    return [rows[start : start + chunk] for start in range(0, len(rows), chunk)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
@pytest.mark.parametrize("objective", ["hinge max", "hinge 0.5", "contrastive sum", "contrastive margin", "mvn"])
def test_dropout_is_replayed(objective, chunk):
    matcher = build(WITH_DROPOUT).train()
    pairs = random_batch(4)
    torch.manual_seed(5)
    matcher.zero_grad()
    expected = one_graph(matcher, OBJECTIVES[objective], pairs, chunk)
    after = torch.get_rng_state()
    expected.total.backward()
    plain = {name: parameter.grad.clone() for name, parameter in matcher.named_parameters()}

    torch.manual_seed(5)
    step = step_for(matcher, OBJECTIVES[objective], chunk)
    loss, ours = loss_and_gradients(step, pairs)
    assert torch.equal(torch.get_rng_state(), after), "one pass over the chunks draws what two passes draw"
    assert loss.total.item() == pytest.approx(expected.total.item(), rel=1e-9)
    assert_equal_gradients(ours, plain)

    ours = {name: gradient.clone() for name, gradient in ours.items()}
    _, others = loss_and_gradients(step, pairs)  # from another random state
    differs = (not torch.allclose(ours[name], others[name]) for name in ours)
    assert any(differs), "the model has no active dropout: this test would prove nothing"


@pytest.mark.parametrize("parts", [("text",), ("project",), ("head_images",)], ids=" ".join)
def test_a_side_without_anything_to_train_is_no_obstacle(parts):
    model = "projected" if parts == ("head_images",) else "vse"
    matcher = build(MODELS[model])
    set_trainable(matcher, parts)
    _, plain = loss_and_gradients(step_for(matcher, Contrastive(), None), random_batch(0))
    assert all(name.startswith(parts[0]) for name in plain)
    for chunk in (1, 3):
        _, ours = loss_and_gradients(step_for(matcher, Contrastive(), chunk), random_batch(0))
        assert_equal_gradients(ours, plain)


@pytest.mark.parametrize("chunk", [11, 12, 1000])
def test_a_chunk_that_holds_the_batch_is_the_plain_step_bit_for_bit(chunk):
    pairs, ends = random_batch(1), []
    for size in (None, chunk):
        matcher = build(WITH_DROPOUT).train()
        step = step_for(matcher, Contrastive(), size)
        torch.manual_seed(3)
        for _ in range(2):
            step(pairs)
        ends.append((matcher.state_dict(), torch.get_rng_state()))
    assert all(torch.equal(value, ends[1][0][name]) for name, value in ends[0][0].items())
    assert torch.equal(ends[0][1], ends[1][1])


def test_a_batch_without_negatives_in_chunks_moves_nothing():
    pairs = random_batch(0)
    pairs = replace(pairs, groups=np.zeros_like(pairs.groups))
    for objective in (objective for name, objective in OBJECTIVES.items() if name != "hinge unmasked"):
        loss, found = loss_and_gradients(step_for(build(MODELS["vse"]), objective, 3), pairs)
        assert loss.total.item() == pytest.approx(0, abs=1e-12)
        assert all(gradient.abs().max() < 1e-12 for gradient in found.values())


def test_a_step_in_chunks_clips_and_moves_like_the_plain_one():
    ends = []
    for chunk in (None, 4):
        matcher = build(MODELS["projected"])
        step = step_for(matcher, MVN(learn_temperature=True), chunk, rate=0.01, clip=0.1)
        for seed in range(4):
            step(random_batch(seed))
        ends.append({**matcher.state_dict(), **step.parameters.state_dict()})
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-7, atol=1e-9)
    assert ends[0]["log_temperature"].item() != pytest.approx(math.log(0.1), abs=1e-3)


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_summary_of_a_batch_in_chunks_is_that_of_the_whole(chunk):
    matcher, pairs = build(MODELS["vse"]), random_batch(0)
    _, whole = step_for(matcher, Hinge(), None).gradients(pairs)
    _, ours = step_for(matcher, Hinge(), chunk).gradients(pairs)
    assert (ours.lowest, ours.highest) == pytest.approx((whole.lowest, whole.highest), abs=1e-12)
    assert sorted(ours.positive_counts.tolist()) == sorted(whole.positive_counts.tolist())
    assert max(whole.positive_counts.tolist()) > 1


@pytest.fixture
def every_warning():
    """Torch gives some warnings once a process, which is the first test's; here they are given each time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("every_warning")
def test_a_training_in_chunks_with_dropout_and_a_learned_temperature_resumes_bit_for_bit(corpus, tmp_path):
    changes = [
        *SMALL,
        "model.text={name='words', hidden=16, word=8, dropout=0.3}",
        "model.dropout=0.2",
        "stage.1.batches.chunk=5",
        "stage.1.objective={name='contrastive', temperature=0.2, learn_temperature=true}",
        "stage.1.optimiser.rate=0.01",
        "stage.1.epochs=3",
        "text.threshold=1",
    ]
    recipe, features = load_recipe("vsepp", changes), with_features(corpus)
    whole = train(recipe, features, tmp_path / "whole", device="cpu", workers=0)
    callback = RecordingCallback((2, 6))
    for turn in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, features, tmp_path / "cut", resume=turn > 0, device="cpu", workers=0, callbacks=[callback])
    train(recipe, features, tmp_path / "cut", resume=True, device="cpu", workers=1, callbacks=[callback])
    assert callback.steps == 9
    for name in ("best/weights.safetensors", "last/snapshot.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()
    assert journal(tmp_path / "cut") == journal(whole)
    logarithms = [line["learned"]["log_temperature"] for line in journal(whole)]
    assert logarithms[-1] == load_file(snapshot_path(whole))["objective.log_temperature"].item()
    assert len({math.log(0.2), *logarithms}) == 4  # it moved in every epoch
