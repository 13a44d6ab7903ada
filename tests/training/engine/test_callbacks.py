"""The order of the hooks, and what happens when a callback raises an exception or stops training."""

import inspect
from contextlib import contextmanager

import pytest

from diptych.errors import CallbackError, DataError
from diptych.training.engine.callbacks import HOOKS, Callback, Callbacks, StopTraining
from diptych.training.engine.checkpoint import Snapshot, snapshot_path
from diptych.training.engine.events import Message, Preparation, TrainingEnd, TrainingStart
from diptych.training.engine.journal import Journal
from diptych.training.prepare import prepare_stage
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import press_ctrl_c
from support.corpora import with_features
from support.recipes import SMALL
from support.runs import assert_same_run, journal

OPTIONS = {"device": "cpu", "workers": 0}


class Recorder(Callback):
    """Records every call; at the call number `at` of `hook` it does what `action` does."""

    def __init__(self, hook=None, action=lambda: None, at=1):
        self.calls, self.hook, self.action, self.at = [], hook, action, at

    def events(self, hook):
        return [event for name, event in self.calls if name == hook]

    def _call(self, hook, event):
        self.calls.append((hook, event))
        if hook == self.hook and len(self.events(hook)) == self.at:
            self.action()


for name in HOOKS.values():
    setattr(Recorder, name, lambda self, event, name=name: self._call(name, event))


def fail():
    raise ValueError("a bug\nin two lines")


def stop():
    raise StopTraining


def started(*some):
    """Callbacks, and a context in which their training runs."""
    callbacks = Callbacks(some)

    @contextmanager
    def training():
        with callbacks.training(lambda reason, error: TrainingEnd(None, reason, error, {})):
            callbacks.start(TrainingStart(None, None, False, 0, callbacks.send))
            yield

    return callbacks, training()


@pytest.fixture(scope="module")
def short(corpus):
    """A corpus with features, and a recipe of two stages, each with two epochs of three steps."""
    changes = [*SMALL, "stage.1.epochs=2", "stage.1.batches.size=16"]
    first = load_recipe("vsepp", changes)
    return first.model_copy(update={"stage": (first.stage[0], first.stage[0].model_copy(update={"start": "previous"}))})


@pytest.fixture(scope="module")
def features(corpus):
    return with_features(corpus)


@pytest.fixture(scope="module")
def recorded(short, features, tmp_path_factory):
    recorder = Recorder()
    run = train(short, features, tmp_path_factory.mktemp("runs") / "whole", callbacks=[recorder], **OPTIONS)
    return run, recorder


def test_every_hook_of_the_base_class_does_nothing():
    hooks = {name for name, _ in inspect.getmembers(Callback, inspect.isfunction)}
    assert hooks == set(HOOKS.values())
    assert {getattr(Callback(), hook)(None) for hook in hooks} == {None}


def test_the_order_of_the_calls(recorded):
    _, recorder = recorded
    called = [hook for hook, _ in recorder.calls if hook not in ("on_message", "on_preparation")]
    epoch = ["on_step"] * 3 + ["on_epoch_end", "on_checkpoint"]
    assert called == ["on_start", *(["on_stage_start", *epoch, *epoch] * 2), "on_end"]
    assert recorder.calls[0][0] == "on_start"  # also before messages: there is one about the features
    assert any("features of size" in message.text for message in recorder.events("on_message"))


def test_what_the_events_say(recorded, short):
    run, recorder = recorded
    [start], [end] = recorder.events("on_start"), recorder.events("on_end")
    assert (start.run, start.recipe, start.is_resumed, start.training_step) == (run, short, False, 0)
    stages = recorder.events("on_stage_start")
    assert [(stage.stage, stage.stages, stage.steps, stage.steps_done) for stage in stages] == [
        (1, 2, 6, 0),
        (2, 2, 6, 0),
    ]
    steps = recorder.events("on_step")
    assert [step.training_step for step in steps] == list(range(1, 13))
    assert [(step.stage, step.epoch, step.step) for step in steps[2:7]] == [
        (1, 1, 3),
        (1, 2, 1),
        (1, 2, 2),
        (1, 2, 3),
        (2, 1, 1),
    ]
    epochs, lines = recorder.events("on_epoch_end"), journal(run)
    assert [epoch.training_step for epoch in epochs] == [3, 6, 9, 12]
    for epoch, line in zip(epochs, lines, strict=True):
        assert (epoch.metrics, epoch.loss, epoch.terms) == (line["val"], line["loss"], line["terms"])
        assert (epoch.rate, epoch.is_best) == (line["rate"], line["best"])
    assert [checkpoint.training_step for checkpoint in recorder.events("on_checkpoint")] == [3, 6, 9, 12]
    assert recorder.events("on_checkpoint")[-1].path == snapshot_path(run)
    best = max(epochs, key=lambda epoch: epoch.metrics["rsum"])
    assert (end.reason, end.error, end.best) == ("finished", None, best.metrics)


def test_the_loss_of_an_epoch_is_the_mean_of_its_steps_weighted_by_their_pairs(recorded):
    _, recorder = recorded
    steps = recorder.events("on_step")[:3]
    pairs = sum(step.pairs for step in steps)
    mean = sum(step.loss * step.pairs for step in steps) / pairs
    assert recorder.events("on_epoch_end")[0].loss == pytest.approx(mean)
    assert steps[-1].mean_loss == pytest.approx(mean)


FAILURES = [  # the hook, its call, and the position that is saved: stage, epoch, step
    ("on_stage_start", 2, (2, 1, 0)),
    ("on_step", 2, (1, 1, 2)),
    ("on_step", 9, (2, 1, 3)),
    ("on_epoch_end", 1, (1, 2, 0)),
    ("on_epoch_end", 4, (2, 3, 0)),
    ("on_checkpoint", 1, (1, 2, 0)),
]


@pytest.mark.parametrize(("hook", "at", "position"), FAILURES)
def test_a_failure_saves_the_last_complete_step_and_the_run_resumes(
    hook, at, position, recorded, short, features, tmp_path
):
    others = [Recorder(), Recorder()]
    broken = Recorder(hook, fail, at)
    callbacks = [others[0], broken, others[1]]
    with pytest.raises(CallbackError, match=rf"^callback Recorder\.{hook}: ValueError: a bug in two lines; ") as failed:
        train(short, features, tmp_path, callbacks=callbacks, **OPTIONS)
    assert isinstance(failed.value.__cause__, ValueError)
    for callback in callbacks:
        assert len(callback.events(hook)) == at  # those after the broken one are told as well
        [end] = callback.events("on_end")
        assert (end.reason, end.error) == ("failed", failed.value)
        assert callback.calls[-1][0] == "on_end"
    saved = Snapshot.read(tmp_path).position
    assert (saved.stage, saved.epoch, saved.step) == position
    train(short, features, tmp_path, resume=True, callbacks=others, **OPTIONS)
    assert_same_run(recorded[0], tmp_path)
    steps = [step.training_step for step in others[0].events("on_step")]
    assert steps == list(range(1, 13))  # each once


@pytest.fixture
def with_preparation(monkeypatch):
    """Every stage reports progress of its preparation, as if features were computed."""

    def prepare(training, *arguments):
        training.progress("features")(1, 2)
        return prepare_stage(training, *arguments)

    monkeypatch.setattr("diptych.training.train.prepare_stage", prepare)


@pytest.mark.usefixtures("with_preparation")
@pytest.mark.parametrize("hook", ["on_start", "on_message", "on_preparation"])
def test_a_failure_before_the_first_snapshot_leaves_no_run(hook, recorded, short, features, tmp_path):
    first, last = Recorder(), Recorder()
    with pytest.raises(CallbackError, match=hook):
        train(short, features, tmp_path, callbacks=[first, Recorder(hook, fail), last], **OPTIONS)
    for callback in (first, last):
        assert [event.reason for event in callback.events("on_end")] == ["failed"]
    train(short, features, tmp_path, **OPTIONS)
    assert_same_run(recorded[0], tmp_path)


def test_a_callback_that_did_not_start_gets_no_end():
    broken, sound = Recorder("on_start", fail), Recorder()
    _, training = started(broken, sound)
    with pytest.raises(CallbackError), training:
        pytest.fail("training does not begin")
    assert [hook for hook, _ in broken.calls] == ["on_start"]
    assert [hook for hook, _ in sound.calls] == ["on_start", "on_end"]


def test_a_failure_in_on_end_reaches_the_caller_after_everything_is_saved(recorded, short, features, tmp_path):
    last = Recorder()
    with pytest.raises(CallbackError, match=r"Recorder\.on_end: ValueError"):
        train(short, features, tmp_path, callbacks=[Recorder("on_end", fail), last], **OPTIONS)
    assert [end.reason for end in last.events("on_end")] == ["finished"]
    assert_same_run(recorded[0], tmp_path)


def test_a_failure_in_on_end_does_not_hide_why_training_ended(short, features, tmp_path):
    callbacks = [Recorder("on_step", press_ctrl_c, 2), Recorder("on_end", fail)]
    with pytest.raises(KeyboardInterrupt):
        train(short, features, tmp_path, callbacks=callbacks, **OPTIONS)


def test_ctrl_c_ends_with_a_checkpoint_and_its_reason(short, features, tmp_path):
    recorder = Recorder("on_step", press_ctrl_c, 2)
    with pytest.raises(KeyboardInterrupt):
        train(short, features, tmp_path, callbacks=[recorder], **OPTIONS)
    assert [hook for hook, _ in recorder.calls[-3:]] == ["on_step", "on_checkpoint", "on_end"]
    [end] = recorder.events("on_end")
    assert (end.reason, type(end.error), end.best) == ("interrupted", KeyboardInterrupt, {})


@pytest.mark.parametrize(
    ("hook", "at", "trained"), [("on_step", 4, 4), ("on_epoch_end", 1, 3), ("on_checkpoint", 2, 6)]
)
def test_a_callback_can_stop_training(hook, at, trained, recorded, short, features, tmp_path):
    stopping, other = Recorder(hook, stop, at), Recorder()
    assert train(short, features, tmp_path, callbacks=[stopping, other], **OPTIONS) == tmp_path
    assert len(other.events("on_step")) == trained
    assert [(end.reason, end.error) for end in other.events("on_end")] == [("stopped", None)]
    assert other.events("on_checkpoint")[-1].training_step == trained
    train(short, features, tmp_path, resume=True, callbacks=[other], **OPTIONS)
    assert other.events("on_start")[-1].training_step == trained
    assert other.events("on_start")[-1].is_resumed
    assert_same_run(recorded[0], tmp_path)


@pytest.mark.usefixtures("with_preparation")
@pytest.mark.parametrize("hook", ["on_start", "on_message", "on_preparation"])
def test_training_that_is_stopped_before_its_first_step_can_be_resumed(hook, recorded, short, features, tmp_path):
    stopping, other = Recorder(hook, stop), Recorder()
    assert train(short, features, tmp_path, callbacks=[stopping, other], **OPTIONS) == tmp_path
    for callback in (stopping, other):
        assert [(end.reason, end.error) for end in callback.events("on_end")] == [("stopped", None)]
        assert callback.events("on_step") == []
    train(short, features, tmp_path, resume=True, **OPTIONS)
    assert_same_run(recorded[0], tmp_path)


def test_messages_wait_until_every_callback_has_started():
    class Greeting(Recorder):
        def on_start(self, start):
            super().on_start(start)
            start.send(Message("from the first"))

    first, second = Greeting(), Recorder()
    callbacks, training = started(first, second)
    callbacks.message("early", "bold")
    with training:
        pass
    assert [hook for hook, _ in second.calls] == ["on_start", "on_message", "on_message", "on_end"]
    assert [message.text for message in second.events("on_message")] == ["early", "from the first"]


def test_an_error_is_more_important_than_a_stop_and_is_wrapped_once():
    class Sending(Callback):
        def on_start(self, start):
            self.send = start.send

        def on_preparation(self, preparation):
            self.send(Message("prepared"))

    stopping, broken = Recorder("on_preparation", stop), Recorder("on_message", fail)
    callbacks, training = started(stopping, Sending(), broken)
    with pytest.raises(CallbackError, match=r"^callback Recorder\.on_message: ValueError"), training:
        callbacks.send(Preparation("features", 1, 2))


def test_an_error_of_diptych_keeps_its_sentence():
    def missing():
        raise DataError("x.jpg: not there")

    callbacks, training = started(Recorder("on_message", missing))
    with pytest.raises(CallbackError, match=r"on_message: x\.jpg: not there; correct the callback"), training:
        callbacks.message("text")


def test_an_epoch_whose_line_cannot_be_written_is_not_finished(recorded, short, features, tmp_path, monkeypatch):
    def full(_journal, _line):
        raise OSError(28, "No space left on device")

    recorder = Recorder()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(Journal, "add", full)
        train(short, features, tmp_path, callbacks=[recorder], **OPTIONS)
    assert [end.reason for end in recorder.events("on_end")] == ["failed"]
    assert Snapshot.read(tmp_path).position.epoch == 1
    train(short, features, tmp_path, resume=True, **OPTIONS)
    assert_same_run(recorded[0], tmp_path)


def test_what_is_not_a_callback_is_refused(short, features, tmp_path):
    with pytest.raises(CallbackError, match="must be a list"):
        train(short, features, tmp_path, callbacks=Recorder())
    for wrong in (Recorder, print):
        with pytest.raises(CallbackError, match=r"is not a callback; derive its class from diptych\.Callback"):
            train(short, features, tmp_path, callbacks=[wrong])
    assert list(tmp_path.iterdir()) == []  # refused before anything is written
