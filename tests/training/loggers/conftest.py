"""A short training with a logger that is interrupted once and resumed."""

import pytest

from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.recipes import SMALL
from support.runs import epoch_lines


class LoggedRun:
    """A run with a logger, and what the training told other callbacks."""

    steps = 9  # three epochs of three steps

    def __init__(self, folder, corpus):
        self.folder, self.corpus = folder, with_features(corpus)
        self.recipe = load_recipe("vsepp", [*SMALL, "stage.1.epochs=3"])
        self.callback = RecordingCallback()

    def train(self, logger, stop_at=(), resume=False):
        self.callback.at = stop_at
        callbacks = [logger, self.callback]
        train(self.recipe, self.corpus, self.folder, resume=resume, callbacks=callbacks, device="cpu", workers=0)

    def train_with_interruption(self, make_logger):
        """Interrupt after step 5 and resume; each time with a logger of its own, as two processes would."""
        with pytest.raises(KeyboardInterrupt):
            self.train(make_logger(), (5,))
        self.train(make_logger(), resume=True)

    @property
    def rsums(self):
        """The metric rsum of each epoch."""
        return [line["val"]["rsum"] for line in epoch_lines(self.folder)]


@pytest.fixture(scope="module")
def logged_run(corpus, tmp_path_factory):
    return LoggedRun(tmp_path_factory.mktemp("logged") / "my run", corpus)
