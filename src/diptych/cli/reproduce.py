"""`diptych reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from diptych.cli.console import counted, print_note, print_result, stdout
from diptych.cli.options import Device, Features, TestShare, ValShare, Workers, thread_count
from diptych.errors import RecipeError

if TYPE_CHECKING:
    from diptych.reproduction.claims import NamedClaim
    from diptych.reproduction.reproduce import Reproduction
    from diptych.reproduction.timetable import Timetable


def command(
    claims: Annotated[
        list[str] | None, typer.Argument(metavar="CLAIM|PAPER|all...", help="Claims by id, papers, or all of them.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="DATA", help="The corpus to test them on.")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after this time, such as 90m or 3h.", show_default="none")
    ] = None,
    into: Annotated[Path, typer.Option(help="The folder of the runs, their records and the results.")] = Path(
        "runs/claims"
    ),
    seeds: Annotated[int, typer.Option(min=3, help="How many seeds each run is trained with.")] = 3,
    profile: Annotated[
        Literal["small", "full"], typer.Option(help="small, for two CPU cores, or full, as in the papers.")
    ] = "small",
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs side by side, with one thread each.")] = 1,
    list_: Annotated[bool, typer.Option("--list", help="List the claims, and train nothing.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with its times, and train nothing.")
    ] = False,
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Word vectors, for the claims that need them.")
    ] = None,
    keep_weights: Annotated[
        bool,
        typer.Option("--keep-weights", help="Keep the weights of all runs, not only those that others start from."),
    ] = False,
    val: ValShare = None,
    test: TestShare = None,
    features: Features = Path("features"),
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Test what the papers claim: train both sides of each claim with several seeds, and say whether it holds.

    Runs that claims share are trained once, and finished ones never again. After an interruption, or with a larger
    budget, the same command continues. The results are claims.html, claims.md and claims.json in the folder.

    Examples:

        diptych reproduce --list

        diptych reproduce all --data dataset_flickr8k.json --dry-run

        diptych reproduce vsepp.max-beats-sum --data dataset_flickr8k.json --into runs/claims

        diptych reproduce vsepp dual_path --data dataset_flickr8k.json --budget 3h --jobs 2
    """
    from diptych.reproduction.claims import find_claims

    named = find_claims(claims or ["all"])
    if list_:
        _print_list(named)
        return
    if data is None or not claims:
        raise RecipeError("name the claims and the corpus: diptych reproduce all --data DATA (or --list the claims)")
    from diptych.cli.open_data import open_data, split_rule
    from diptych.machine import keep_freed_memory
    from diptych.reproduction.reproduce import ReproductionRequest, reproduce
    from diptych.reproduction.timetable import read_duration

    seconds = None if budget is None else read_duration(budget)
    keep_freed_memory()
    request = ReproductionRequest(
        claims=claims,
        corpus=open_data(data, split_rule(val, test), [into]),
        into=into,
        seeds=seeds,
        profile=profile,
        jobs=jobs,
        vectors=vectors,
        features=features,
        device=device,
        workers=thread_count(workers) if jobs == 1 else 0,
        keep_weights=keep_weights,
    )
    plan, timetable = request.plan()
    _print_plan(timetable, seconds)
    if seconds is not None and budget is not None:
        timetable.check_budget(seconds, budget)
    if dry_run:
        return
    from diptych.cli.task_display import TaskDisplay

    try:
        with TaskDisplay(len(plan.tasks)) as display:
            found = reproduce(request, plan, budget=seconds, display=display)
    except KeyboardInterrupt:
        print_note(f"stopped; run the same command again to continue (folder {into})")
        raise
    _write(found)
    _print_results(found)


def _print_list(claims: list[NamedClaim]) -> None:
    """Print the id of each claim in one piece, and below it what it says."""
    for each in claims:
        needs = ", ".join(need for need in each.claim.needs if need not in ("val", "test"))
        about = f"{each.claim.where}; needs {needs}" if needs else each.claim.where
        stdout.print(Text(each.id, "bold"), soft_wrap=True)
        stdout.print(Padding(Text.assemble(each.claim.says, (f" ({about})", "dim")), (0, 0, 0, 4)))
    print_result(counted(len(claims), "claim"))


def _claim_table(title: str, *columns: str) -> Table:
    """A table whose first column has ids, which are never cut."""
    table = Table(box=SIMPLE_HEAD, title=title)
    table.add_column("claim", overflow="fold")
    for column in columns:
        table.add_column(column)
    return table


def _print_plan(timetable: Timetable, budget: float | None) -> None:
    """Print what each claim still costs, and when it can be judged."""
    from diptych.reproduction.timetable import duration

    plan = timetable.plan
    table = _claim_table("The plan", "tasks", "CPU time", "judged after")
    for claim in plan.claims:
        tasks, end = plan.tasks_of(claim), timetable.end(claim)
        late = " (beyond the budget)" if budget is not None and end is not None and end > budget else ""
        cost = duration(timetable.cost(tasks)) if tasks else "finished"
        table.add_row(claim.named.id, str(len(tasks)), cost, f"{duration(end)}{late}" if tasks else "now")
    stdout.print(table)
    for each in plan.not_applicable:
        print_note(f"not applicable: {each.named.id}: {each.reason}")
    sources = {estimate.source for estimate in timetable.estimates.values()}
    if plan.tasks:
        print_result(
            f"{counted(len(plan.tasks), 'task')}, finished after about {duration(timetable.total)} "
            f"(times {', '.join(sorted(sources))}; tasks that claims share are counted for each, and done once; "
            "computing the features of new photos is not included)"
        )


def _write(found: Reproduction) -> None:
    from diptych.files import write_json, write_text
    from diptych.reproduction.claim_tables import claims_json, claims_markdown
    from diptych.reproduction.page import write_claims_page

    folder = found.request.into
    write_json(folder / "claims.json", claims_json(found))
    write_text(folder / "claims.md", claims_markdown(found))
    write_claims_page(folder / "claims.html", found)
    print_note(f"wrote {folder / 'claims.html'}, claims.md and claims.json")


def _print_results(found: Reproduction) -> None:
    """Print the verdict of each claim and how far the plan has come."""
    from diptych.reproduction.claim_tables import effect_rows

    table = _claim_table("Claims", "verdict", "measured", "over queries", "over seeds")
    for result in found.results:
        rows = effect_rows(result)
        columns = zip(*((f"{row.effect} {row.metric}", row.over_queries, row.over_seeds) for row in rows), strict=True)
        cells = ["\n".join(column) for column in columns] or [result.reason or "", "", ""]
        table.add_row(result.named.id, result.verdict, *cells)
    stdout.print(table)
    for task, reason in found.outcome.failed.items():
        print_note(f"failed: {task}: {reason}")
    if found.outcome.is_out_of_time:
        print_note("the budget is spent; the same command continues")
