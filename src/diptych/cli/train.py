"""`diptych train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import print_note, print_result, stdout
from diptych.cli.open_data import split_rule
from diptych.cli.options import (
    AllowCode,
    Data,
    Device,
    Devices,
    Download,
    Features,
    Log,
    NoStarter,
    Overrides,
    ProfileName,
    RecipeName,
    ReportOn,
    Seeds,
    TestShare,
    ValShare,
    Workers,
)
from diptych.errors import CallbackError, RecipeError

if TYPE_CHECKING:
    from diptych.cli.training import TrainingOptions
    from diptych.evaluation.protocols.seeds import SeedStatistics
    from diptych.ranks import Ranks


def command(
    recipe: RecipeName,
    data: Data,
    into: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/RECIPE")] = None,
    set_: Overrides = None,
    profile: ProfileName = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Override the recipe's seed.")] = None,
    seeds: Seeds = None,
    report_on: ReportOn = "val",
    val: ValShare = None,
    test: TestShare = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    features: Features = Path("features"),
    no_starter: NoStarter = False,
    device: Device = "auto",
    devices: Devices = None,
    workers: Workers = None,
    log: Log = None,
    _download: Download = False,
    _allowed_code: AllowCode = None,
) -> None:
    """Train a recipe on a corpus, once or with several seeds, and write a report.

    A single run is then compared on val with the starter, the model that comes with Diptych, and with the figures that
    were published for the recipe.

    With --seeds, each run gets its own folder seed-N, and a table of all runs with mean and standard deviation is
    printed. After an interruption, the same command continues; finished runs are not trained again.

    Examples:

        diptych train scenes scenes --into runs/first

        diptych train vsepp photos/ --profile small --set stage.1.objective.margin=0.1

        diptych train scenes scenes --into runs/first --resume

        diptych train scenes scenes --seeds 5 --report-on test

        diptych train scenes scenes --log tensorboard

        diptych train diptych-default photos.csv --val 0.15 --test 0.15

        diptych train vsepp photos/ --devices 4

        torchrun --nproc-per-node 4 -m diptych train vsepp photos/
    """
    from diptych.cli.ranks import job
    from diptych.cli.training import TrainingOptions
    from diptych.machine import keep_freed_memory
    from diptych.training.recipe_loader import profiled_name

    keep_freed_memory()
    options = TrainingOptions(data, split_rule(val, test), features, device, workers, log or ())
    recipe, overrides = profiled_name(recipe, profile), set_ or []
    folder = into or Path("runs") / Path(recipe).stem
    if seeds is None:
        if report_on != "val":
            raise RecipeError("--report-on needs --seeds; measure a single run with `diptych evaluate`")
        overrides = [*overrides, *([] if seed is None else [f"seed={seed}"])]
        with job(device, devices) as ranks:
            _train_one(recipe, overrides, folder, options, ranks, resume=resume, with_baselines=not no_starter)
        return
    if devices is not None:
        raise RecipeError("--devices and --seeds exclude each other; train one run per seed, with --seed and --into")
    if seed is not None:
        raise RecipeError("--seed and --seeds exclude each other; remove one (--seeds 3,7 names seeds)")
    if resume:
        raise RecipeError("--resume and --seeds exclude each other; remove --resume, runs with --seeds always continue")
    statistics = _train_seeds(recipe, overrides, folder, options, seeds=seeds, report_on=report_on)
    even = "" if len(statistics.runs) % 2 else ", the lower of the two middle ones"
    print_result(f"median run by {statistics.sum_metric}: {folder / statistics.median_run}{even}", "bold green")


def _train_one(
    recipe: str,
    overrides: list[str],
    folder: Path,
    options: TrainingOptions,
    ranks: Ranks,
    *,
    resume: bool,
    with_baselines: bool,
) -> None:
    """Train one run, write its report on val, and print how it compares with the paper and, if wanted, baselines."""
    from diptych.model import Model
    from diptych.report.baselines import open_baselines
    from diptych.report.tables.baselines import baseline_table
    from diptych.training.engine.checkpoint import snapshot_path
    from diptych.training.recipe_loader import load_recipe
    from diptych.training.train import train

    chosen, callbacks = load_recipe(recipe, overrides), options.callbacks()
    corpus = options.open_corpus([folder] if resume else [])
    device, workers, features = options.device, options.workers, options.features
    try:
        train(
            chosen,
            corpus,
            folder,
            resume=resume,
            device=device,
            workers=workers,
            callbacks=callbacks,
            features=features,
        )
    except (KeyboardInterrupt, CallbackError):
        if snapshot_path(folder).exists():
            print_note(f"stopped; run the same command with --resume to continue (run folder {folder})")
        else:
            print_note("stopped before anything was saved; run the same command to start again")
        raise
    if not ranks.is_first:
        return
    evaluator = options.evaluator(corpus)
    reported = evaluator.write_report(folder, Model.load(folder, device, stores=features))
    baselines = open_baselines(folder, device, features, print_note) if with_baselines else []
    comparison = evaluator.compare_with_baselines(folder, reported, baselines)
    if comparison is not None:
        stdout.print(baseline_table(comparison, "val"))
    print_result(f"trained {folder}, report {folder / 'report.html'}", "bold green")
    print_note(f"evaluate it with: diptych evaluate {folder} {options.data}")


def _train_seeds(
    recipe: str, overrides: list[str], folder: Path, options: TrainingOptions, *, seeds: str, report_on: str
) -> SeedStatistics:
    """Train one run per seed, print a table of them and write it to summary.json."""
    from diptych.cli.training import train_runs
    from diptych.evaluation.protocols.seeds import SeedStatistics
    from diptych.files import write_json
    from diptych.report.sweep_tables import seeds_table
    from diptych.training.sweep_plan import plan_seeds, read_seeds

    runs = plan_seeds(recipe, read_seeds(seeds), overrides)
    measured = train_runs(runs, folder, {report_on}, options)
    statistics = SeedStatistics({name: metrics[report_on] for name, metrics in measured.items()})
    stdout.print(seeds_table(statistics, f"{recipe} on {options.data}, split {report_on}").render())
    summary = {"recipe": recipe, "data": options.data, "split": report_on, **statistics.to_json()}
    write_json(folder / "summary.json", summary)
    print_note(f"wrote {folder / 'summary.json'}")
    return statistics
