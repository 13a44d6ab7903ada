"""`diptych sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.console import print_note, print_result, stdout
from diptych.cli.open_data import split_rule
from diptych.cli.options import (
    AllowCode,
    Data,
    Device,
    Download,
    Features,
    Log,
    Overrides,
    ProfileName,
    RecipeName,
    ReportOn,
    Seeds,
    TestShare,
    ValShare,
    Workers,
)


def command(
    recipe: RecipeName,
    data: Data,
    over: Annotated[
        list[str],
        typer.Option(metavar="KEY=V1,V2,...", help="The values to try for a key; repeatable, one key at a time."),
    ],
    grid: Annotated[bool, typer.Option("--grid", help="Try all combinations of the values instead.")] = False,
    set_: Overrides = None,
    profile: ProfileName = None,
    seeds: Seeds = None,
    into: Annotated[Path | None, typer.Option(help="The runs' folder.", show_default="runs/RECIPE-sweep")] = None,
    report_on: ReportOn = "val",
    val: ValShare = None,
    test: TestShare = None,
    features: Features = Path("features"),
    device: Device = "auto",
    workers: Workers = None,
    log: Log = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Train a recipe with several values of its keys, and print a table of the results.

    The best setting is always chosen on val. After an interruption, the same command continues; finished runs are not
    trained again.

    Examples:

        diptych sweep scenes scenes --over stage.2.objective.margin=0.1,0.2,0.4

        diptych sweep scenes scenes --over stage.1.epochs=1,2 --over stage.2.epochs=5,7 --seeds 3

        diptych sweep scenes scenes --over "stage.2.trainable=['all'],['text','project']" --report-on test
    """
    from diptych.cli.training import TrainingOptions, train_runs
    from diptych.files import write_json, write_text
    from diptych.machine import keep_freed_memory
    from diptych.report.sweep_tables import SweepResult
    from diptych.training.recipe_loader import profiled_name
    from diptych.training.sweep_plan import plan_sweep, read_seeds

    recipe = profiled_name(recipe, profile)
    sweep = plan_sweep(recipe, over, set_ or (), None if seeds is None else read_seeds(seeds), grid=grid)
    keep_freed_memory()
    folder = into or Path("runs") / f"{Path(recipe).stem}-sweep"
    options = TrainingOptions(data, split_rule(val, test), features, device, workers, log or ())
    measured = train_runs(sweep.runs, folder, {"val", report_on}, options)
    result = SweepResult.of(sweep, measured, report_on)
    title = f"{recipe} on {data}, split {report_on}"
    stdout.print(result.table(title).render())
    print_result(result.best_line, "bold green")
    write_json(folder / "summary.json", {"recipe": recipe, "data": data, **result.to_json()})
    write_text(folder / "summary.md", result.to_markdown(title))
    print_note(f"wrote {folder / 'summary.json'} and summary.md")
