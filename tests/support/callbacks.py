"""A callback that records what a training reports, and that can press Ctrl-C."""

import os
import signal

from diptych.training.engine.callbacks import Callback


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


class RecordingCallback(Callback):
    """Records stages, steps, epochs, preparations and messages.

    At the steps `at`, counted over all trainings that it is passed to, and whenever `preparation` reports progress, it
    calls `action`, which presses Ctrl-C by default.
    """

    def __init__(self, at=(), action=press_ctrl_c, preparation=None):
        self.at, self.action, self.preparation = at, action, preparation
        self.steps, self.stages, self.epochs, self.preparations, self.messages = 0, [], [], [], []

    def on_stage_start(self, stage):
        self.stages.append((stage.stage, stage.stages, stage.steps, stage.steps_done))

    def on_epoch_end(self, epoch):
        self.epochs.append(epoch)

    def on_step(self, step):
        self.steps += 1
        if self.steps in self.at:
            self.action()

    def on_preparation(self, preparation):
        self.preparations.append((preparation.what, preparation.done, preparation.total))
        if preparation.what == self.preparation:
            self.action()

    def on_message(self, message):
        self.messages.append(message.text)

    def messages_with(self, words):
        """The messages that contain some words."""
        return [message for message in self.messages if words in message]
