"""`diptych train`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import err, note, say
from diptych.cli.options import Data, Device, Workers


def command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or a .toml file.")],
    data: Data,
    into: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/RECIPE")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Override the recipe's seed.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    features: Annotated[Path, typer.Option(help="The folder that keeps a frozen backbone's features.")] = Path(
        "features"
    ),
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Train a recipe on a corpus.

    Examples:

        diptych train scenes scenes --into runs/first

        diptych train vsepp photos/ --set stage.1.objective.margin=0.1

        diptych train scenes scenes --into runs/first --resume
    """
    from diptych.data.open import open_corpus
    from diptych.evaluation.runs import evaluate_encoded
    from diptych.machine import cores, keep_freed_memory
    from diptych.models.trained import Trained
    from diptych.report.negatives import hard_negatives
    from diptych.report.run import write_report
    from diptych.training.checkpoint import snapshot_path
    from diptych.training.progress import Bar
    from diptych.training.recipe import load_recipe
    from diptych.training.train import train

    overrides = [*(set_ or []), *([] if seed is None else [f"seed={seed}"])]
    keep_freed_memory()
    chosen = load_recipe(recipe, overrides)
    folder = into or Path("runs") / Path(recipe).stem
    corpus = open_corpus(data)
    if corpus.problems:
        note(f"{len(corpus.problems)} rows of the data were left out; `diptych data check {data}` lists them")
    try:
        with Bar(err) as watcher:
            run = partial(train, resume=resume, device=device, workers=workers, features=features)
            run(chosen, corpus, folder, watcher=watcher)
    except KeyboardInterrupt:
        if snapshot_path(folder).exists():
            note(f"stopped; go on with the same command and --resume (run folder {folder})")
        else:
            note("stopped before anything was saved; start again with the same command")
        raise
    trained = Trained.open(folder, device)
    encoded = trained.encode(corpus.split("val"), cores() if workers is None else workers)
    negatives = hard_negatives(folder, trained, corpus)
    report = write_report(folder, encoded, evaluate_encoded([encoded]), "val", negatives=negatives)
    say(f"trained {folder}, report {report}", "bold green")
    note(f"measure it: diptych evaluate {folder} {data}")
