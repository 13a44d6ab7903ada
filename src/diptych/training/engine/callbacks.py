"""Callbacks: objects that a training tells about its progress.

The order of the calls, where a stage repeats steps and epochs:

    on_start
        on_preparation*  on_stage_start
            on_step*  on_epoch_end  on_checkpoint
    on_end

`on_message` can come at any time between `on_start` and `on_end`, and `on_checkpoint` after any step: a snapshot is
also saved every five minutes, and if training is interrupted or stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from diptych.errors import CallbackError, DiptychError, one_line
from diptych.training.engine.events import (
    Checkpoint,
    EpochEnd,
    Message,
    Preparation,
    Reason,
    StageStart,
    StepEnd,
    TrainingEnd,
    TrainingStart,
)


class StopTraining(Exception):  # noqa: N818
    """Raised by a callback to end training early: the run is saved, and `train` returns as if it had finished.

    The run can be resumed, and has a best model as soon as one epoch has ended.
    """


class Callback:
    """Override the hooks that you need; the others do nothing.

    If a hook raises an exception, all other callbacks still receive the event. Then a snapshot of the last complete
    step is saved, every callback gets `on_end`, and `train` raises a `CallbackError`. `StopTraining` ends training
    in the same way without an error.
    """

    def on_start(self, start: TrainingStart) -> None:
        """Training begins or resumes; nothing has been prepared yet."""

    def on_preparation(self, preparation: Preparation) -> None:
        """Something that a stage needs first has made progress."""

    def on_message(self, message: Message) -> None:
        """There is something that the user should read."""

    def on_stage_start(self, stage: StageStart) -> None:
        """A stage is prepared, and its first snapshot is saved."""

    def on_step(self, step: StepEnd) -> None:
        """A step has finished."""

    def on_epoch_end(self, epoch: EpochEnd) -> None:
        """An epoch has been validated, and the best weights are saved."""

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        """A snapshot was saved: after an epoch, every five minutes, or because training stops here."""

    def on_end(self, end: TrainingEnd) -> None:
        """Training has ended, for whatever reason; called once if `on_start` was called and has not raised."""


Event = TrainingStart | Preparation | Message | StageStart | StepEnd | EpochEnd | Checkpoint | TrainingEnd

HOOKS: dict[type[Event], str] = {
    TrainingStart: "on_start",
    Preparation: "on_preparation",
    Message: "on_message",
    StageStart: "on_stage_start",
    StepEnd: "on_step",
    EpochEnd: "on_epoch_end",
    Checkpoint: "on_checkpoint",
    TrainingEnd: "on_end",
}


class Callbacks:
    """The callbacks of one training, called in their order."""

    def __init__(self, callbacks: Iterable[Callback] = (), built_in: Iterable[Callback] = ()) -> None:
        """Those that are built in are called before the others, and their errors are those of training itself."""
        self._built_in = tuple(built_in)
        self._callbacks = (*self._built_in, *_checked(callbacks))
        self._started: list[Callback] = []
        self._early: list[Message] | None = []  # messages that wait until all have started; None after that

    def send(self, event: Event) -> None:
        """Call the event's hook of each callback, then raise what the first of them raised, errors before stops."""
        if isinstance(event, Message) and self._early is not None:
            self._early.append(event)
            return
        raised = [error for callback in self._callbacks if (error := self._call(callback, event)) is not None]
        for error in sorted(raised, key=lambda error: isinstance(error, StopTraining)):
            raise error

    def message(self, text: str, style: str = "") -> None:
        """Send a message without a record."""
        self.send(Message(text, style))

    @contextmanager
    def training(self, end: Callable[[Reason, BaseException | None], TrainingEnd]) -> Iterator[None]:
        """Call `on_end` at the end, whatever happens, for all that have started; a `StopTraining` ends here."""
        reason: Reason = "finished"
        error: BaseException | None = None
        try:
            yield
        except StopTraining:
            reason = "stopped"
        except BaseException as raised:
            reason, error = "interrupted" if isinstance(raised, KeyboardInterrupt) else "failed", raised
            raise
        finally:
            self._end(end(reason, error))

    def start(self, start: TrainingStart) -> None:
        """Call `on_start`, then send the messages that have waited for it."""
        self.send(start)
        early, self._early = self._early, None
        for message in early or ():
            self.send(message)

    def _end(self, end: TrainingEnd) -> None:
        self._callbacks, self._started = tuple(self._started), []
        try:
            self.send(end)
        except (CallbackError, StopTraining) as raised:
            # What made training fail is more important, and stopping at the end means nothing.
            if end.error is None and isinstance(raised, CallbackError):
                raise

    def _call(self, callback: Callback, event: Event) -> CallbackError | StopTraining | None:
        """Call a callback's hook, and return what it raised; raise a Ctrl-C, or an error of one that is built in."""
        hook = HOOKS[type(event)]
        raised: CallbackError | StopTraining | None = None
        try:
            getattr(callback, hook)(event)
        except (StopTraining, CallbackError) as error:  # the latter of a callback that was sent a message by this one
            raised = error
        except Exception as error:
            if callback in self._built_in:
                raise
            reason = str(error) if isinstance(error, DiptychError) else one_line(error)
            name = f"{type(callback).__name__}.{hook}"
            raised = CallbackError(f"callback {name}: {reason}; correct the callback or leave it out")
            raised.__cause__ = error
        if isinstance(event, TrainingStart) and not isinstance(raised, CallbackError):
            self._started.append(callback)
        return raised


def _checked(callbacks: Iterable[Callback]) -> Iterable[Callback]:
    """The callbacks as a user has passed them, refused if they are something else."""
    if not isinstance(callbacks, Iterable):
        raise CallbackError(f"callbacks = {callbacks!r}: must be a list, such as callbacks=[MyCallback()]")
    for callback in (callbacks := tuple(callbacks)):
        if not isinstance(callback, Callback):
            advice = "derive its class from diptych.Callback, and pass an object of that class"
            raise CallbackError(f"callbacks: {callback!r} is not a callback; {advice}")
    return callbacks
