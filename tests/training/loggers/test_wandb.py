"""Runs of Weights & Biases, logged offline and read back from their files."""

import json
import struct

import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record

from diptych.training.loggers.wandb import WandbLogger

BLOCK, HEADER = 32768, 7


def records(file):
    """The records of a .wandb file: a header, then the blocks of a LevelDB log with one message each."""
    data, place, parts = file.read_bytes(), HEADER, []
    assert data[:4] == b":W&B"
    while place + HEADER <= len(data):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + HEADER])
        parts.append(data[place + HEADER : place + HEADER + length])
        place += HEADER + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(b"".join(parts))
            parts = []


def rows(found):
    """The logged rows, as dictionaries."""
    for record in found:
        if record.HasField("history"):
            items = record.history.item
            yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture(scope="module")
def offline_runs(logged_run):
    """The records of the two offline runs: until the interruption, and after it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_MODE", "WANDB_PROJECT"):
            patch.delenv(name, raising=False)
        logged_run.train_with_interruption(lambda: WandbLogger(every=2))
    wandb.teardown()  # its service writes the end of a file a moment after a run has finished
    files = sorted((logged_run.folder / "wandb").glob("offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime)
    return [list(records(file)) for file in files]


def test_a_resumed_run_continues_with_its_id(offline_runs, logged_run):
    runs = [record.run for found in offline_runs for record in found if record.HasField("run")]
    identity = (logged_run.folder / "wandb" / "diptych-id.txt").read_text()
    assert len(offline_runs) == 2
    assert {run.run_id for run in runs} == {identity}
    assert {(run.project, run.display_name) for run in runs} == {("diptych", "my run")}


def test_the_rows(offline_runs, logged_run):
    first, second = (list(rows(found)) for found in offline_runs)
    losses = [row["training_step"] for row in [*first, *second] if "train/loss" in row]
    assert losses == [1, *range(2, logged_run.steps + 1, 2)]
    assert {row["training_step"]: row["val/rsum"] for row in [*first, *second] if "val/rsum" in row} == pytest.approx(
        dict(zip((3, 6, 9), logged_run.rsums, strict=True))
    )
    assert any(name.startswith("train/terms/") for name in first[0])
    assert first[0]["train/rate"] > 0


def test_recipe_and_best_metrics(offline_runs, logged_run):
    [*_, last] = offline_runs
    config = {
        item.key: json.loads(item.value_json)
        for record in last
        if record.HasField("run")
        for item in record.run.config.update
    }
    assert config["stage"][0]["epochs"] == 3
    summary = {}
    for record in last:
        if record.HasField("summary"):
            summary |= {item.key: json.loads(item.value_json) for item in record.summary.update}
    assert summary["best/rsum"] == pytest.approx(max(logged_run.rsums))


def test_exit_codes_say_how_training_ended(offline_runs):
    codes = [record.exit.exit_code for found in offline_runs for record in found if record.HasField("exit")]
    assert codes == [1, 0]


def test_the_user_is_told_where_it_is(offline_runs, logged_run):
    assert len(logged_run.callback.messages_with("wandb: offline, nothing is sent; upload it with: wandb sync '")) == 2
