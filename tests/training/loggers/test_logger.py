"""Which figures are logged, how often, and how loggers are found by name."""

from pathlib import Path

import pytest

from diptych.errors import DiptychError
from diptych.training.engine.events import EpochEnd, StepEnd, TrainingEnd, TrainingStart
from diptych.training.loggers.logger import Logger, hyperparameters, make_logger, resumed_id
from diptych.training.recipe_loader import load_recipe


class ListLogger(Logger):
    """Keeps everything in a list."""

    def open(self, start):
        self.rows = []
        return "list: look at rows"

    def log(self, figures, training_step):
        self.rows.append((training_step, dict(figures)))

    def close(self, end, best):
        self.rows.append((end.reason, dict(best)))


def start_of(run=Path("run"), is_resumed=False, send=lambda _message: None):
    return TrainingStart(run, load_recipe("scenes"), is_resumed, 0, send)


def step(number, terms):
    return StepEnd(1, 1, number, number, terms, 0.5, 0.01, 4, 10.0)


def test_the_figures_and_their_names():
    logger, messages = ListLogger(every=3), []
    logger.on_start(start_of(send=messages.append))
    assert [message.text for message in messages] == ["list: look at rows"]
    for number in range(1, 8):
        logger.on_step(step(number, {"a": 0.25, "b": 0.5}))
    logger.on_step(step(9, {}))  # no image of the batch could be read
    metrics, learned = {"rsum": 300.0}, {"temperature": 0.1}
    logger.on_epoch_end(
        EpochEnd(1, 1, 2, 9, 9, metrics, "rsum 300", 0.6, {"a": 0.6}, 0.01, learned, {}, is_best=True, seconds=1.0)
    )
    logger.on_end(TrainingEnd(Path("run"), "finished", None, metrics))
    figures = {"train/loss": 0.75, "train/rate": 0.01, "train/terms/a": 0.25, "train/terms/b": 0.5}
    assert logger.rows == [
        (1, figures),
        (3, figures),
        (6, figures),
        (9, {"epoch/loss": 0.6, "epoch/learned/temperature": 0.1, "val/rsum": 300.0}),
        ("finished", {"best/rsum": 300.0}),
    ]


def test_hyperparameters_have_the_keys_of_set():
    values = hyperparameters(start_of())
    assert values["stage.2.objective.margin"] == 0.2
    assert values["stage.1.trainable"] == "['all']"
    assert values["model.text.name"] == "gru"
    assert {type(value) for value in values.values()} <= {str, int, float, bool}
    # Each can be set: the recipe with a key changed has another value under that key.
    changed = load_recipe("scenes", ["stage.2.objective.margin=0.3"])
    assert hyperparameters(TrainingStart(None, changed, False, 0, None))["stage.2.objective.margin"] == 0.3


def test_only_a_resumed_run_has_an_id(tmp_path):
    file = tmp_path / "id.txt"
    assert resumed_id(start_of(is_resumed=True), file) is None
    file.write_text("abc\n")
    assert resumed_id(start_of(is_resumed=True), file) == "abc"
    assert resumed_id(start_of(), file) is None  # what a run left that was never trained


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_loggers_by_name(name):
    assert type(make_logger(name)).__module__ == f"diptych.training.loggers.{name}"


def test_an_unknown_name_and_a_wrong_number_of_steps():
    with pytest.raises(DiptychError, match="--log tensorbord: no such logger; did you mean 'tensorboard'"):
        make_logger("tensorbord")
    with pytest.raises(DiptychError, match="--log logger: no such logger"):
        make_logger("logger")
    with pytest.raises(DiptychError, match=r"every = 0: .* must be at least 1"):
        ListLogger(every=0)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, name, None)  # as if it were not installed
    with pytest.raises(DiptychError, match=rf"^{name} .*pip install 'diptych\[{name}\]'$"):
        make_logger(name)
