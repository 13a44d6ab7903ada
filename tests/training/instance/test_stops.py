"""A run that was stopped ends as one that was not, and only with its own data."""

import pytest

from diptych.errors import RunError
from diptych.training.engine.checkpoint import snapshot_path
from diptych.training.train import train

STEPS = 4  # an epoch: 28 pairs in batches of 8
KINDS = {
    "dense": [],
    "bias": ["stage.1.objective.bias=true", "stage.2.objective.bias=true"],
    "sampled": ["stage.1.objective.sampled=9", "stage.2.objective.sampled=9"],
    "adam, sampled": [
        *("stage.1.objective.sampled=9", "stage.2.objective.sampled=9", "stage.1.optimiser={rate=0.01}"),
        "stage.2.optimiser={name='adam', rate=0.01}",
    ],
    "clusters": ["stage.1.objective.clusters=4", "stage.2.objective.clusters=4"],
    "public": ["model.heads=public", "model.text.pool=max"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_ends_bit_for_bit_like_one_that_was_not(
    kind, two_stages, trained, corpus, stores, tmp_path, epochs_of, watching
):
    recipe = two_stages(*KINDS[kind])
    whole, _ = trained(recipe, tmp_path / "whole")
    watcher, stops = watching(stops=(2, 7, 11)), 3
    for turn in range(stops):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, corpus, tmp_path / "cut", resume=turn > 0, device="cpu", callback=watcher, features=stores)
    train(recipe, corpus, tmp_path / "cut", resume=True, device="cpu", callback=watcher, features=stores)
    assert watcher.count == 2 * 2 * STEPS
    files = [
        *("best/weights.safetensors", "best/objective.safetensors", "last/snapshot.safetensors"),
        *("stage-1/weights.safetensors", "stage-1/objective.safetensors"),
    ]
    for name in files:
        assert (whole / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name
    told = [[{**line, "seconds": 0} for line in epochs_of(run)] for run in (whole, tmp_path / "cut")]
    assert told[0] == told[1]
    assert len(watcher.of_classes()) == 2  # once a stage, however often it goes on


def test_a_run_does_not_go_on_with_other_groups(one_stage, corpus, stores, tmp_path, regrouped, watching):
    recipe = one_stage()
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, device="cpu", callback=watching(stops=(2,)), features=stores)
    before = snapshot_path(tmp_path).read_bytes()
    with pytest.raises(RunError, match=r"snapshot\.safetensors: made with other data; resume with the same data"):
        train(recipe, regrouped(corpus), tmp_path, resume=True, device="cpu", features=stores)
    assert snapshot_path(tmp_path).read_bytes() == before
    train(recipe, corpus, tmp_path, resume=True, device="cpu", features=stores)
