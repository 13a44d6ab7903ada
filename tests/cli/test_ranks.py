"""Commands as several ranks: one report, Ctrl-C, a rank that dies, another number of ranks."""

import os
import signal
import sys

import pytest
import torch
from safetensors.torch import load_file

from diptych.cli import ranks
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.engine.journal import Journal
from support.rank_cases import DATA, SMALL_RECIPE
from support.ranks import finish, ranks_of, start, start_ranks, wait_for


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    file = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    file.write_text(SMALL_RECIPE)
    return file


def words(recipe, run, *more):
    return ["-m", "diptych", "train", recipe, DATA, "--into", run, "--no-starter", "--device", "cpu", *more]


def epochs(run):
    return [line["epoch"] for line in Journal(run).lines() if line["event"] == "epoch"]


@pytest.mark.long
def test_two_ranks_train_as_one_process_does(recipe, tmp_path):
    """The same batches at a rate that does not magnify rounding, without dropout; only the first rank reports."""
    more = ["--set", "stage.1.optimiser.rate=0.0003", "--set", "stage.1.epochs=2"]
    alone = start(tmp_path, *words(recipe, "alone", *more))
    _, errors = alone.communicate(timeout=120)
    assert alone.returncode == 0, errors
    ended = finish(start_ranks(2, words(recipe, tmp_path / "two", *more)), seconds=120)
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert f"trained {tmp_path / 'two'}" in ended[0][1]
    assert ended[1][1:] == ("", "")
    ours, theirs = (load_file(tmp_path / run / "last" / "snapshot.safetensors") for run in ("two", "alone"))
    for name in (name for name in theirs if name.startswith("model.")):
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=2e-4)
    lines = [[line for line in Journal(tmp_path / run).lines() if line["event"] == "epoch"] for run in ("two", "alone")]
    assert [line["epoch"] for line in lines[0]] == [1, 2]
    for two, one in zip(*lines, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert two["step"] == one["step"]
        assert two["val"].keys() == one["val"].keys()
    assert lines[1][1]["loss"] < 0.99 * lines[1][0]["loss"], "nothing was learned: this would prove nothing"


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ctrl_c_and_a_killed_rank_leave_a_run_that_any_number_of_ranks_can_resume(recipe, tmp_path):
    run, more = tmp_path / "run", ["--set", "stage.1.epochs=400"]
    job = start(tmp_path, *words(recipe, "run", "--devices", "2", *more))
    wait_for(lambda: len(epochs(run)) >= 1)
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 130
    assert "stopped; run the same command with --resume to continue" in errors
    assert "Traceback" not in errors
    stopped = Snapshot.read(run).position
    assert stopped.epoch in (len(epochs(run)), len(epochs(run)) + 1)

    job = start(tmp_path, *words(recipe, "run", "--devices", "3", "--resume", *more))
    wait_for(lambda: len(epochs(run)) > stopped.epoch)
    os.kill(ranks_of(job)[1], signal.SIGKILL)
    _, errors = job.communicate(timeout=60)
    assert job.returncode != 0
    message = (
        "diptych: another rank has ended; what was saved is complete: "
        "run the same command again (to train: with --resume)"
    )
    assert errors.strip().splitlines()[-1] == message
    assert epochs(run) == list(range(1, len(epochs(run)) + 1))
    assert Snapshot.read(run).position.epoch >= len(epochs(run))


@pytest.mark.long
def test_a_full_disk_of_the_first_rank_ends_the_job_in_one_line_and_the_run_resumes(recipe, tmp_path):
    run, script = tmp_path / "run", tmp_path / "full_disk.py"
    script.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from diptych.cli.main import main\n"
        "from diptych.models import storage\n"
        "save_file = storage.save_file\n"
        "def full(tensors, path, header):\n"
        f"    if os.environ['RANK'] == '0' and Path({str(run / 'last/snapshot.safetensors')!r}).exists():\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    save_file(tensors, path, header)\n"
        "storage.save_file = full\n"
        "sys.argv[0:3] = ['diptych']\n"
        "main()\n"
    )
    ended = finish(start_ranks(2, [script, *words(recipe, run)]), seconds=60)
    assert [status for status, _, _ in ended] == [1, 1], ended
    assert ended[0][2].strip().splitlines()[-1].startswith(f"diptych: {run}")
    assert "No space left on device" in ended[0][2]
    assert "Traceback" not in ended[0][2] + ended[1][2]
    assert ended[1][1:] == ("", "")
    stopped = Snapshot.read(run).position
    assert stopped.epoch < 3
    ended = finish(start_ranks(2, words(recipe, run, "--resume")), seconds=60)
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert epochs(run) == [1, 2, 3]


def test_a_rank_that_is_killed_ends_the_others_and_is_named(monkeypatch, capfd):
    monkeypatch.setattr(ranks, "GRACE", 0.1)
    program = (
        "import os, signal, time; os.kill(os.getpid(), signal.SIGKILL) if os.environ['RANK'] == '1' else time.sleep(60)"
    )
    assert ranks.run_ranks(2, [sys.executable, "-c", program]) == signal.SIGKILL
    assert capfd.readouterr().err == (
        "diptych: rank 1 was ended by SIGKILL; what was saved is complete: "
        "run the same command again (to train: with --resume)\n"
    )


@pytest.mark.long
def test_ranks_with_different_recipes_are_refused(recipe, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(SMALL_RECIPE.replace("0.005", "0.006"))
    script = tmp_path / "either.py"
    script.write_text(
        "import os, sys\n"
        f"sys.argv[3:3] = [[{str(recipe)!r}, {str(other)!r}][int(os.environ['RANK'])]]\n"
        "sys.argv[0:1] = ['diptych']\n"
        "del sys.argv[1]\n"
        "from diptych.cli.main import main\n"
        "main()\n"
    )
    ended = finish(start_ranks(2, [script, "x", "train", DATA, "--into", tmp_path / "run"]), seconds=60)
    assert [status for status, _, _ in ended] == [1, 1], ended
    (line,) = [line for line in ended[0][2].splitlines() if line.startswith("diptych: ")]
    assert line.startswith("diptych: rank 1 has the recipe ")
    assert ended[1][2] == ""
    assert not (tmp_path / "run/recipe.toml").exists()
