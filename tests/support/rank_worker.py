"""A rank of a test: compares losses and gradients of all ranks together with those that it computes alone.

Usage: python -m support.rank_worker FOLDER CASE..., as several processes with the variables of torchrun. The first rank
writes FOLDER/result.json: the largest deviation of any gradient, in units of the largest gradient, by case.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from diptych.ranks import ALONE, join_ranks
from diptych.training.context import TrainingContext
from diptych.training.distributed.agreement import Agreement
from diptych.training.distributed.encoding import seed_common
from diptych.training.engine.callbacks import Callbacks
from diptych.training.engine.loop import batch_reader
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import Plan, prepare, train
from support.rank_cases import CASES, corpus, recipe

CPU = torch.device("cpu")
BATCHES = 3


def gradients(name, ranks, folder):
    """The losses and gradients of the first batches of the last stage, at the weights that it begins with."""
    file = folder / "recipe.toml"
    made, data, callbacks = load_recipe(str(file)), corpus(CASES[name][2]), Callbacks()
    run, number = folder / "run", len(made.stage)
    plan = Plan.checked(made, data, folder / "no run", False, folder / "features", callbacks)
    training = TrainingContext(plan.recipe, data, plan.digest, run, 0, callbacks, folder / "features", Agreement(ranks))
    prepared = prepare(training, plan.start, CPU, number, None)
    prepared.step.matcher.to(torch.get_default_dtype()).train()
    reader = batch_reader(prepared)
    found = {}
    for number, pairs in enumerate([*prepared.data.sampler.epoch(1)[:BATCHES], prepared.data.sampler.epoch(1)[-1]]):
        seed_common(SimpleNamespace(draw=pairs.draw))
        batch = reader.settle(reader.read(pairs))
        if batch.images.dtype == np.float32:
            batch = replace(batch, images=batch.images.astype(np.float64))
        for parameter in (*prepared.step.matcher.parameters(), *prepared.step.parameters.values()):
            parameter.grad = None
        loss, _ = prepared.step.gradients(batch)
        named = {**dict(prepared.step.matcher.named_parameters()), **dict(prepared.step.parameters.items())}
        found |= {f"{number} loss {term}": value.detach() for term, value in (loss.terms | loss.model_terms).items()}
        found |= {f"{number} gradient {key}": value.grad for key, value in named.items() if value.grad is not None}
        found |= {f"{number} statistics {key}": value.double() for key, value in prepared.step.matcher.named_buffers()}
    return {key: value.clone() for key, value in found.items()}


def deviation(name, ranks, folder):
    """The largest deviation from what one process computes."""
    if ranks.is_first:
        folder.mkdir()
        (folder / "recipe.toml").write_text(recipe(name), encoding="utf-8")
        if recipe(name).count("[[stage]]") > 1:
            train_alone(name, folder)
    ranks.wait()
    # Pixels are always single precision. In double, only the order of sums differs, and nothing is hidden by rounding.
    torch.set_default_dtype(torch.float32 if CASES[name][2] == "pictures" else torch.float64)
    alone = gradients(name, ALONE, folder)
    together = gradients(name, ranks, folder)
    torch.set_default_dtype(torch.float32)
    assert alone.keys() <= together.keys(), (name, alone.keys() - together.keys())
    assert any(value.abs().max() > 1e-4 for value in alone.values()), f"{name}: this would prove nothing"
    worst = 0.0
    for key, value in together.items():
        wanted = alone.get(key, torch.zeros_like(value))  # a parameter that is not used has no gradient alone
        kind = " ".join(key.split()[:2])
        scale = max(float(other.abs().max()) for name, other in alone.items() if name.startswith(kind))
        difference = float((value - wanted).abs().max()) / max(scale, 1e-6)
        if difference > 1e-9:
            sys.stderr.write(f"rank {ranks.rank}: {name}: {key} differs by {difference}\n")
        worst = max(worst, difference)
    return worst


def train_alone(name, folder):
    """Train a run of this recipe, whose first stage is what the last one starts from."""
    import diptych.training.train as module

    kept, module.Ranks = module.Ranks, Alone
    try:
        train(load_recipe(str(folder / "recipe.toml")), corpus(CASES[name][2]), folder / "run", workers=0)
    finally:
        module.Ranks = kept


class Alone:
    """Stands in for `Ranks`: a process that has joined others trains by itself."""

    current = staticmethod(lambda: ALONE)


def main():
    """Compare all cases."""
    torch.set_num_threads(1)
    folder, *cases = sys.argv[1:]
    with join_ranks("cpu") as ranks:
        results = {name: deviation(name, ranks, Path(folder, str(number))) for number, name in enumerate(cases)}
        everywhere = ranks.gather_values(results)
        if ranks.is_first:
            worst = {name: max(result[name] for result in everywhere) for name in cases}
            Path(folder, "result.json").write_text(json.dumps(worst), encoding="utf-8")


if __name__ == "__main__":
    main()
