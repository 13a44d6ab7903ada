"""A ramp by steps and after a plateau: its shares against a plain loop, and runs that are killed on each part of it."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.objectives import quintuplet
from diptych.objectives.extras import RampOptions
from diptych.objectives.objective import Loss
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.needs import ramp as module
from diptych.training.needs.ramp import Ramp
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.encoded import batch_of_pairs
from support.runs import assert_same_run, journal

BATCH = batch_of_pairs([0, 1], [0, 1])


def run_through(ramp, losses, is_mean=False):
    """The share of each step, as the objective gets it."""
    shares = []
    for value in losses:
        shares.append(ramp.supply(BATCH, None).share)
        total = value if is_mean else value * len(BATCH)
        ramp.after_loss(BATCH, Loss({"online": torch.tensor(total), "offline": torch.tensor(9e9)}, is_mean=is_mean))
    return shares


def reference_shares(options, losses):
    start, smoothed, shares = options.after, None, []
    for step, value in enumerate(losses):
        if start is None and smoothed is not None and smoothed < options.below:
            start = step
        shares.append(0.0 if start is None else sorted([0.0, (step - start) / options.steps, 1.0])[1])
        smoothed = value if smoothed is None else 0.98 * smoothed + 0.02 * value
    return shares


@given(
    st.integers(1, 5),
    st.none() | st.integers(0, 6),
    st.lists(st.floats(0, 1, width=16), max_size=25),
    st.booleans(),
)
def test_the_shares_are_those_of_a_plain_loop(steps, after, losses, is_mean):
    options = RampOptions(steps, after, "online", 0.36)
    assert run_through(Ramp(options), losses, is_mean) == pytest.approx(reference_shares(options, losses), abs=1e-6)


def test_a_ramp_by_steps():
    assert run_through(Ramp(RampOptions(4, 2, "online", 0.0)), [1.0] * 8) == [0, 0, 0, 0.25, 0.5, 0.75, 1, 1]
    assert run_through(Ramp(RampOptions(2, 0, "online", 0.0)), [1.0] * 4) == [0, 0.5, 1, 1]


def test_a_single_easy_batch_does_not_end_a_plateau():
    losses = [0.4] * 10 + [0.05] + [0.4] * 10
    assert run_through(Ramp(RampOptions(5, None, "online", 0.36)), losses) == [0] * 21
    assert run_through(Ramp(RampOptions(5, None, "online", 0.36)), [0.4] * 5 + [0.1] * 20)[-1] == 1


def test_once_it_has_begun_the_loss_does_not_matter():
    ramp = Ramp(RampOptions(4, None, "online", 0.36))
    run_through(ramp, [0.1])
    assert run_through(ramp, [5.0] * 6) == [0, 0.25, 0.5, 0.75, 1, 1]


@given(st.lists(st.floats(0, 1, width=16), max_size=12), st.lists(st.floats(0, 1, width=16), min_size=1, max_size=12))
def test_a_snapshot_holds_all_that_later_shares_depend_on(before, after):
    options = RampOptions(3, None, "online", 0.36)
    whole, stopped, resumed = Ramp(options), Ramp(options), Ramp(options)
    run_through(whole, before)
    run_through(stopped, before)
    resumed.load_state(stopped.state())
    assert run_through(whole, after) == run_through(resumed, after)
    assert resumed.reported() == {"ramp": resumed.share}


def test_ranks_take_the_loss_of_the_first():
    """With rounding of their own, one rank could begin a step before another."""

    class Second:
        def broadcast_(self, tensor):
            return tensor.fill_(0.1 * len(BATCH))

    ramp, shared = Ramp(RampOptions(1, None, "online", 0.36)), replace(BATCH, share=SimpleNamespace(ranks=Second()))
    for _ in range(2):
        ramp.after_loss(shared, Loss({"online": torch.tensor(0.4 * len(BATCH))}))
    assert ramp.share == 1


RECIPE = """
[model]
name = "vse"
joint = 8
text = { name = "words", word = 8, hidden = 8 }
image = { name = "features" }

[text]
threshold = 1

[[stage]]
epochs = 1
objective = { name = "hinge", negatives = "sum" }
batches = { size = 16 }

[[stage]]
start = "previous"
epochs = 4
objective = { name = "quintuplet", offline_ramp = { after = "plateau", steps = 4 } }
offline = { lists = "previous", top_texts = 20, top_images = 6 }
batches = { size = 16 }
optimiser = { rate = 0.05 }
"""
FIRST, STEPS = 3, 4 * 3  # the steps of both stages


@pytest.fixture(scope="module")
def quick():
    """Smoothing over few steps, and a threshold that the falling loss passes: this training has few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMOOTHING", 0.3)
        patch.setattr(quintuplet, "LEFT", 1.1)
        yield


@pytest.fixture(scope="module", params=["plateau", 5], ids=["plateau", "steps"])
def ramped(request, quick, recipes, corpus, tmp_path_factory):
    """A recipe whose ramp begins within its second stage, its data, and the run."""
    after = f"'{request.param}'" if request.param == "plateau" else request.param
    recipe = recipes(RECIPE, f"stage.2.objective.offline_ramp.after={after}")
    data = with_features(corpus)
    return recipe, data, train(recipe, data, tmp_path_factory.mktemp("ramped") / "run", device="cpu", workers=0)


def test_the_ramp_begins_within_the_stage_and_is_in_the_journal(ramped):
    recipe, _, run = ramped
    shares = [line["learned"]["ramp"] for line in journal(run) if line["event"] == "epoch" and line["stage"] == 2]
    step, start, smoothed = Snapshot.read(run).tensors[module.STATE].tolist()
    assert step == STEPS
    assert 3 <= start <= STEPS - 4
    assert smoothed < 1.1 * 0.4 or (smoothed == math.inf and recipe.stage[1].objective.offline_ramp.after == 5)
    assert shares == [sorted([0, (step - start) / 4, 1])[1] for step in (3, 6, 9, 12)]


@pytest.mark.parametrize("at", [(2,), (4,), (6,), (7,), (8,), (10,), (5, 4, 2)], ids=str)
def test_a_run_that_is_stopped_anywhere_on_the_ramp_ends_as_the_whole(ramped, tmp_path, at):
    recipe, data, whole = ramped
    for turn, step in enumerate(at):
        callback = RecordingCallback((step if turn else FIRST + step,))
        with pytest.raises(KeyboardInterrupt):
            train(recipe, data, tmp_path / "run", device="cpu", workers=0, callbacks=[callback], resume=turn > 0)
    train(recipe, data, tmp_path / "run", device="cpu", workers=0, resume=True)
    assert_same_run(whole, tmp_path / "run")


def test_a_run_that_is_killed_on_the_ramp_ends_as_the_whole(ramped, tmp_path, monkeypatch):
    monkeypatch.setattr("diptych.training.engine.loop.SECONDS_BETWEEN_SNAPSHOTS", 0.0)
    recipe, data, whole = ramped

    class PowerCut(BaseException):
        """Nothing of Diptych catches it."""

    def power_cut():
        raise PowerCut

    callback = RecordingCallback((FIRST + 8,), power_cut)
    with pytest.raises(PowerCut):
        train(recipe, data, tmp_path / "run", device="cpu", workers=0, callbacks=[callback])
    assert 0 < Snapshot.read(tmp_path / "run").tensors[module.STATE][0] < STEPS
    train(recipe, data, tmp_path / "run", device="cpu", workers=0, resume=True)
    assert_same_run(whole, tmp_path / "run")


def test_a_ramp_changes_what_is_learned(ramped, tmp_path):
    recipe, data, whole = ramped
    stage = recipe.stage[1]
    plain = stage.model_copy(update={"objective": stage.objective.model_copy(update={"offline_ramp": None})})
    other = train(recipe.model_copy(update={"stage": (recipe.stage[0], plain)}), data, tmp_path / "run", device="cpu")
    assert journal(whole)[:1] == journal(other)[:1]
    first, second = (Snapshot.read(run).tensors for run in (whole, other))
    assert not torch.equal(first["model.project.weight"], second["model.project.weight"])
