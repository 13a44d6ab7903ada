"""Event files are read back with TensorBoard's own reader."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from diptych.training.loggers.tensorboard import TensorBoardLogger
from diptych.training.train import train
from support.runs import assert_same_run


def read(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


@pytest.fixture(scope="module")
def events(logged_run):
    logged_run.train_with_interruption(lambda: TensorBoardLogger(every=1))
    return read(logged_run.folder / "tensorboard")


def test_a_resumed_run_continues_the_curves(events, logged_run):
    losses = events.Scalars("train/loss")
    assert [point.step for point in losses] == list(range(1, logged_run.steps + 1))
    assert [point.step for point in events.Scalars("train/rate")] == list(range(1, logged_run.steps + 1))
    rsums = events.Scalars("val/rsum")
    assert [point.step for point in rsums] == [3, 6, 9]
    assert [point.value for point in rsums] == pytest.approx(logged_run.rsums)
    assert events.Scalars("best/rsum")[-1].value == pytest.approx(max(logged_run.rsums))


def test_logging_does_not_change_the_result(events, logged_run, tmp_path):
    train(logged_run.recipe, logged_run.corpus, tmp_path, device="cpu", workers=0)
    assert_same_run(tmp_path, logged_run.folder)


def test_the_terms_add_up_to_the_loss(events):
    terms = [tag for tag in events.Tags()["scalars"] if tag.startswith("train/terms/")]
    assert terms
    totals = zip(*(events.Scalars(tag) for tag in terms), strict=True)
    losses = [point.value for point in events.Scalars("train/loss")]
    assert [sum(point.value for point in points) for points in totals] == pytest.approx(losses, rel=1e-5)


def test_the_recipe_is_logged_as_text_and_as_hyperparameters(events):
    text = events.Tensors("recipe/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert "[stage.objective]" in text
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    values = HParamsPluginData.FromString(content).session_start_info.hparams
    assert values["stage.1.epochs"].number_value == 3
    assert values["stage.1.objective.name"].string_value == "hinge"


def test_what_a_killed_run_logged_after_its_snapshot_is_dropped(logged_run, tmp_path):
    folder = tmp_path / "own folder"
    before = TensorBoardLogger(folder, every=1)
    start = type("Start", (), {"run": tmp_path, "recipe": logged_run.recipe, "is_resumed": False, "training_step": 0})
    before.open(start)
    for step in range(1, 6):
        before.log({"train/loss": 1.0}, step)
    before._writer.flush()  # and then the process is killed; its snapshot was made after step 3
    start.is_resumed, start.training_step = True, 3
    after = TensorBoardLogger(folder, every=1)
    assert after.open(start) == f"tensorboard: see the curves with: tensorboard --logdir '{folder}'"
    after.log({"train/loss": 2.0}, 4)
    after._writer.close()
    before._writer.close()
    assert [(point.step, point.value) for point in read(folder).Scalars("train/loss")] == [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (4, 2.0),
    ]
