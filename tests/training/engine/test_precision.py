"""Training in half precision: its gradients against those of float32, overflows, several ranks, and whole trainings."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.data.sampling.share import Share
from diptych.errors import RunError
from diptych.models.matchers.vse import VSE
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.mvn import MVN
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.engine.precision import SMALLEST_SCALE, precision_remark
from diptych.training.needs.need import find_need
from diptych.training.prepare import make_step
from diptych.training.recipe import Batches, Stage
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.rank_cases import CASES, recipe
from support.rank_cases import corpus as rank_corpus
from support.ranks import on_threads
from support.recipes import SMALL
from support.runs import epoch_lines, journal, load_weights
from support.steps import CPU, MODELS, random_batch

HALF = ("bfloat16", "float16")
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
# Without hinges, which rounding turns on and off.
OBJECTIVES = {"contrastive": Contrastive(), "learned": Contrastive(learn_temperature=True), "mvn": MVN()}


def built(model="vse"):
    torch.manual_seed(0)
    return MODELS[model].build()


def batch(seed):
    made = random_batch(seed)
    return replace(made, images=made.images.astype(np.float32))


def step_in(precision, matcher, objective=OBJECTIVES["contrastive"], chunk=None, **optimiser):
    batches = Batches(size=16, chunk=chunk)
    stage = Stage(objective=objective, batches=batches, optimiser=optimiser, precision=precision)
    return make_step(matcher, stage, CPU, [find_need(name)() for name in objective.needs])


def loss_and_gradient(step, pairs):
    """The loss, and all gradients in one vector, at the largest scale at which none of them overflows."""
    while True:
        step.optimiser.zero_grad()
        loss, _ = step.gradients(pairs)
        if step.scaler.unscale(step.optimiser):
            break
    gradients = [parameter.grad for group in step.optimiser.param_groups for parameter in group["params"]]
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    return loss.total.item(), torch.cat([gradient.flatten() for gradient in gradients])


def set_scale(step, scale):
    step.scaler.load_state({**step.scaler.state(), "scale": scale})


def state(step):
    """Weights, the objective's parameters and what the optimiser keeps."""
    kept = [value for state in step.optimiser.state.values() for value in state.values() if torch.is_tensor(value)]
    return [value.clone() for value in (*step.matcher.state_dict().values(), *step.parameters.values(), *kept)]


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_gradients_are_those_of_float32_up_to_rounding(objective, model, precision):
    wanted_loss, wanted = loss_and_gradient(step_in("float32", built(model), OBJECTIVES[objective]), batch(0))
    loss, gradient = loss_and_gradient(step_in(precision, built(model), OBJECTIVES[objective]), batch(0))
    assert loss == pytest.approx(wanted_loss, rel=2 * ROUNDING[precision])
    difference = ((gradient - wanted).norm() / wanted.norm()).item()
    assert difference < 8 * ROUNDING[precision]
    assert difference > ROUNDING[precision] / 20, "nothing was rounded: this test would prove nothing"


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_chunks_have_the_gradients_of_the_whole_batch(objective, precision):
    whole_loss, whole = loss_and_gradient(step_in(precision, built(), OBJECTIVES[objective]), batch(0))
    loss, gradient = loss_and_gradient(step_in(precision, built(), OBJECTIVES[objective], chunk=3), batch(0))
    assert loss == pytest.approx(whole_loss, rel=2 * ROUNDING[precision])
    assert (gradient - whole).norm() / whole.norm() < 8 * ROUNDING[precision]


@pytest.mark.parametrize("precision", HALF)
def test_encodings_are_rounded_and_scores_are_not(precision):
    matcher, pairs = built(), batch(0)
    encoder = step_in(precision, matcher).encoder
    images = encoder.encode_images(torch.from_numpy(pairs.images))
    plain = matcher.encode_images(torch.from_numpy(pairs.images))
    assert images.dtype == torch.float32
    assert not torch.equal(images, plain)
    torch.testing.assert_close(images, plain, rtol=0, atol=4 * ROUNDING[precision])
    assert torch.equal(encoder.score(images, images), images @ images.t())
    assert step_in("float32", matcher).encoder is matcher


@pytest.mark.parametrize("optimiser", [{"name": "adam"}, {"name": "sgd", "momentum": 0.9}], ids=["adam", "sgd"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_a_step_that_overflows_is_skipped_and_halves_the_scale(chunk, optimiser):
    step = step_in("float16", built(), OBJECTIVES["learned"], chunk, rate=0.01, **optimiser)
    set_scale(step, 2.0**40)
    before, skipped = state(step), 0
    while True:
        step(batch(0))
        if not step.scaler.has_overflowed:
            break
        skipped += 1
        assert step.scaler.value == 2.0 ** (40 - skipped)
        assert_equal(state(step), before)
    assert skipped > 3
    assert not any(torch.equal(new, old) for new, old in zip(state(step)[:3], before[:3], strict=True))
    step(batch(1))
    # What the optimiser keeps is that of a training that never skipped a step.
    other = step_in("float16", built(), OBJECTIVES["learned"], chunk, rate=0.01, **optimiser)
    set_scale(other, step.scaler.value)
    for seed in range(2):
        other(batch(seed))
        assert not other.scaler.has_overflowed
    assert_equal(state(step), state(other))


def test_gradients_are_unscaled_before_they_are_clipped():
    ends = []
    for scale in (2.0**4, 2.0**10):
        step = step_in("float16", built(), rate=0.1, clip=0.5, name="sgd", momentum=0)
        set_scale(step, scale)
        step(batch(0))
        assert not step.scaler.has_overflowed
        moved = [after - before for after, before in zip(state(step), built().state_dict().values(), strict=True)]
        ends.append(torch.cat([change.flatten() for change in moved]))
        assert ends[-1].norm().item() == pytest.approx(0.1 * 0.5, rel=1e-3)
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-3)


def share_of(pairs, ranks):
    """A rank's part of a batch."""
    images, texts = (
        [np.arange(count)[ranks.share(count, rank)] for rank in range(ranks.count)]
        for count in (len(pairs.images), len(pairs.ids))
    )
    own = texts[ranks.rank]
    share = Share(ranks, (0, 1, 1, 0), tuple(images), tuple(texts), len(own))
    return replace(
        pairs, images=pairs.images[images[ranks.rank]], ids=pairs.ids[own], lengths=pairs.lengths[own], share=share
    )


@pytest.mark.parametrize("chunk", [None, 3])
def test_ranks_skip_the_same_steps(chunk):
    """The gradients of the second rank alone overflow in the second step; then both go on with the same weights."""

    def work(ranks):
        step = step_in("float16", steps[ranks.rank], OBJECTIVES["learned"], chunk, rate=0.01)
        set_scale(step, 2.0**4)
        found = []
        for number in range(3):
            hooks = []
            if number == 1 and ranks.rank == 1:
                hooks = [weight.register_hook(lambda gradient: gradient * torch.inf) for weight in weights(step)]
            step(share_of(batch(number), ranks))
            for hook in hooks:
                hook.remove()
            found.append((step.scaler.has_overflowed, step.scaler.value, state(step)))
        return found

    def weights(step):
        return list(step.matcher.project.parameters())

    matcher = built()
    steps = [copy.deepcopy(matcher) for _ in range(2)]
    first, second = on_threads(2, work)
    for ours, theirs in zip(first, second, strict=True):
        assert ours[:2] == theirs[:2]
        assert_equal(ours[2], theirs[2])
    assert [overflowed for overflowed, _, _ in first] == [False, True, False]
    assert [scale for _, scale, _ in first] == [16, 8, 8]
    assert_equal(first[0][2], first[1][2])
    assert not torch.equal(first[1][2][0], first[2][2][0])


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("chunk", [None, 3])
def test_gradients_of_two_ranks_are_those_of_one(chunk, precision):
    _, alone = loss_and_gradient(step_in(precision, built(), chunk=chunk), batch(0))
    matchers = [built(), built()]

    def work(ranks):
        return loss_and_gradient(step_in(precision, matchers[ranks.rank], chunk=chunk), share_of(batch(0), ranks))[1]

    first, second = on_threads(2, work)
    assert torch.equal(first, second)
    assert (first - alone).norm() / alone.norm() < 8 * ROUNDING[precision]


# Whole trainings

CHANGES = [
    *SMALL,
    "model.text={name='words', hidden=16, word=8, dropout=0.3}",
    "stage.1.objective={name='hinge', negatives='sum'}",
    "stage.1.optimiser.rate=0.01",
    "stage.1.epochs=3",
    "text.threshold=1",
]


def recipe_in(precision, *changes):
    return load_recipe("vsepp", [*CHANGES, f"stage.1.precision={precision}", *changes])


@pytest.mark.parametrize("chunk", [16, 5])
def test_a_training_in_float16_resumes_bit_for_bit(corpus, tmp_path, chunk):
    recipe, features = recipe_in("float16", f"stage.1.batches.chunk={chunk}"), with_features(corpus)
    callback = RecordingCallback()
    whole = train(recipe, features, tmp_path / "whole", device="cpu", workers=0, callbacks=[callback])
    assert callback.messages_with("stage 1: precision = 'float16': the towers compute in float16, all else in float32")
    skipped = [line.get("skipped_steps", 0) for line in epoch_lines(whole)]
    assert skipped[0] > 0, "no step overflowed: this test would prove nothing"
    assert sum(skipped) < 9
    assert {line["precision"] for line in epoch_lines(whole)} == {"float16"}
    about = Snapshot.read(whole).about["loss_scaler"]
    assert about["scale"] == 2.0 ** (16 - sum(skipped))

    callback = RecordingCallback((1, 2, 6))  # within the steps that overflow, and after them
    for turn in range(3):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, features, tmp_path / "cut", resume=turn > 0, device="cpu", workers=0, callbacks=[callback])
    train(recipe, features, tmp_path / "cut", resume=True, device="cpu", workers=0, callbacks=[callback])
    assert callback.steps == 9
    for name in ("best/weights.safetensors", "last/snapshot.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()
    assert journal(tmp_path / "cut") == journal(whole)
    assert {value.dtype for value in load_weights(whole).values()} == {torch.float32}


@pytest.mark.parametrize("precision", ["float32", *HALF])
def test_only_training_is_in_half_precision(corpus, tmp_path, monkeypatch, precision):
    found = set()
    encode = VSE.encode_texts

    def watched(matcher, tokens):
        found.add((matcher.training, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        return encode(matcher, tokens)

    monkeypatch.setattr(VSE, "encode_texts", watched)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    run = train(recipe_in(precision), with_features(corpus), tmp_path / "run", device="cpu", workers=0)
    in_training = precision != "float32"
    used = getattr(torch, precision) if in_training else torch.bfloat16
    assert found == {(True, in_training, used), (False, False, torch.bfloat16)}
    losses = [line["loss"] for line in epoch_lines(run)]
    assert losses[-1] < losses[0]


class Losses(RecordingCallback):
    """Records the loss of each step."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_step(self, step):
        self.losses.append(step.loss)


@pytest.mark.parametrize(
    "case",
    [
        "hinge, pictures",
        pytest.param("instance, sampled", marks=pytest.mark.long),
        "neighbourhood",
        "logistic",
        "bfan",
        "scan",
        "vsrn",
    ],
)
def test_every_kind_of_model_trains_in_half_precision(recipes, tmp_path, case):
    """The loss of the first step is that of float32; batch norm of few pairs that hardly differ magnifies rounding."""
    first, weights = {}, {}
    for precision in ("float32", *HALF):
        text = recipe(case).replace("epochs = 2", f'epochs = 1\nprecision = "{precision}"')
        data, callback = rank_corpus(CASES[case][2]), Losses()
        run = train(recipes(text), data, tmp_path / precision, device="cpu", workers=0, callbacks=[callback])
        first[precision], weights[precision] = callback.losses[0], load_weights(run)
    for precision in HALF:
        assert first[precision] == pytest.approx(first["float32"], rel=40 * ROUNDING[precision])
        assert first[precision] != first["float32"]
        assert all(value.isfinite().all() for value in weights[precision].values())


def test_gradients_that_overflow_at_any_scale_end_the_training(corpus, tmp_path, monkeypatch):
    encode = VSE.encode_texts

    def spoiled(matcher, tokens):
        encoded = encode(matcher, tokens)
        if encoded.requires_grad:
            encoded.register_hook(lambda gradient: gradient * torch.nan)
        return encoded

    monkeypatch.setattr(VSE, "encode_texts", spoiled)
    recipe = recipe_in("float16", "stage.1.epochs=20")
    with pytest.raises(RunError) as caught:
        train(recipe, with_features(corpus), tmp_path / "run", device="cpu", workers=0)
    steps = int(np.log2(2.0**16 / SMALLEST_SCALE)) + 1
    assert str(caught.value) == (
        f"stage 1, epoch {(steps - 1) // 3 + 1}, step {(steps - 1) % 3 + 1}: the gradients overflow at any scale; "
        "lower optimiser.rate, which is 0.01, or set precision = 'bfloat16', which has the range of float32"
    )


@pytest.mark.parametrize(
    ("precision", "device", "end"),
    [
        ("bfloat16", "cpu", "; CPUs without instructions for bfloat16 are slower in it"),
        ("float16", "cpu", "; CPUs are slow in float16: use 'bfloat16' or 'float32'"),
        ("bfloat16", "cuda", "; this GPU only emulates bfloat16, which is slow: use 'float16'"),
        ("float16", "cuda", ""),
        ("bfloat16", "mps", ""),
    ],
)
def test_a_remark_says_what_the_device_makes_of_it(monkeypatch, precision, device, end):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    remark = f"precision = {precision!r}: the towers compute in {precision}, all else in float32{end}"
    assert precision_remark(precision, torch.device(device)) == remark
    assert precision_remark("float32", torch.device(device)) is None
