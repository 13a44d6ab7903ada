"""What tests read of a run's folder."""

import json

import torch
from safetensors.torch import load_file

from diptych.training.engine.checkpoint import snapshot_path


def journal(run):
    """The lines of metrics.jsonl without the seconds, which differ from run to run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def epoch_lines(run):
    """The lines of metrics.jsonl that end an epoch."""
    return [line for line in journal(run) if line["event"] == "epoch"]


def load_weights(run, folder="best"):
    return load_file(run / folder / "weights.safetensors")


def last_weights(run):
    """The weights of a run's last snapshot."""
    tensors = load_file(snapshot_path(run))
    return {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}


def assert_same_run(one, other):
    """Two runs have equal snapshots, the same bytes of best weights, and the same journal."""
    first, second = load_file(snapshot_path(one)), load_file(snapshot_path(other))
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    assert len({(run / "best" / "weights.safetensors").read_bytes() for run in (one, other)}) == 1
    assert journal(one) == journal(other)
