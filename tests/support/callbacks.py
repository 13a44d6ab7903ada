"""A callback that records what a training reports, and that can press Ctrl-C."""

import os
import signal

from diptych.training.engine.callbacks import NoCallback


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


class RecordingCallback(NoCallback):
    """Records stages, steps, preparations and messages.

    At the steps `at`, counted over all trainings that it is passed to, and whenever `preparation` reports progress, it
    calls `action`, which presses Ctrl-C by default.
    """

    def __init__(self, at=(), action=press_ctrl_c, preparation=None):
        self.at, self.action, self.preparation = at, action, preparation
        self.steps, self.stages, self.preparations, self.messages = 0, [], [], []

    def on_stage(self, number, stages, steps, done):
        self.stages.append((number, stages, steps, done))

    def on_step(self, epoch, loss, pairs_per_second):
        self.steps += 1
        if self.steps in self.at:
            self.action()

    def on_preparation(self, what, done, total):
        self.preparations.append((what, done, total))
        if what == self.preparation:
            self.action()

    def message(self, text, style=""):
        self.messages.append(text)

    def messages_with(self, words):
        """The messages that contain some words."""
        return [message for message in self.messages if words in message]
