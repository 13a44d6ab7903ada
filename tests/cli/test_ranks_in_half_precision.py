"""Two processes train in float16 as one does, and skip the same steps."""

import pytest
import torch
from safetensors.torch import load_file

from diptych.training.engine.checkpoint import Snapshot
from support.rank_cases import DATA, SMALL_RECIPE
from support.ranks import finish, start_ranks
from support.runs import epoch_lines

CHANGES = ("stage.1.optimiser.rate=0.0003", "stage.1.epochs=2", "stage.1.precision=float16")


@pytest.mark.long
def test_two_ranks_skip_the_steps_that_one_process_skips(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(SMALL_RECIPE)
    options = ["--no-starter", "--device", "cpu", *(word for change in CHANGES for word in ("--set", change))]
    for count in (1, 2):
        run = tmp_path / str(count)
        ended = finish(start_ranks(count, ["-m", "diptych", "train", recipe, DATA, "--into", run, *options]), 180)
        assert [status for status, _, _ in ended] == [0] * count, ended
        output = "".join(ended[0][1:])
        assert "stage 1: precision = 'float16': the towers compute in float16, all else in float32;" in output
        assert " steps skipped (overflow in float16)" in output
    alone, together = epoch_lines(tmp_path / "1"), epoch_lines(tmp_path / "2")
    assert [line.get("skipped_steps") for line in together] == [line.get("skipped_steps") for line in alone]
    assert 0 < alone[0]["skipped_steps"] < alone[0]["step"]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.01)
    scalers = [Snapshot.read(tmp_path / str(count)).about["loss_scaler"] for count in (1, 2)]
    assert scalers[0] == scalers[1]
    ours, theirs = (load_file(tmp_path / str(count) / "last/snapshot.safetensors") for count in (2, 1))
    for name in (name for name in theirs if name.startswith("model.")):
        torch.testing.assert_close(ours[name], theirs[name], rtol=0.01, atol=0.01)
