"""The command line; each command is a thin shell around functions of the library.

Commands import what they need when they run: importing torch takes seconds, which help and completion should not wait
for.
"""

from __future__ import annotations

import os
import sys

import typer

from diptych import __version__
from diptych.cli import (
    calibrate,
    compare,
    data,
    demo,
    doctor,
    encode,
    evaluate,
    explain,
    export,
    features,
    fuse,
    index,
    localize,
    make,
    mine,
    open,
    recipes,
    search,
    serve,
    sweep,
    train,
    watch,
)
from diptych.cli.console import print_error, show_warnings
from diptych.cli.search_words import SearchCommand
from diptych.errors import DiptychError
from diptych.optional import needs_train

# Must be set before torch is imported. By default, waiting OpenMP threads spin for a long time and take the cores from
# working threads: on a busy machine, training becomes several times slower.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

app = typer.Typer(
    name="diptych",
    help="Image-text matching: train, evaluate and search in both directions.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command("features")(features.command)
app.command("train")(train.command)
app.command("sweep")(sweep.command)
app.command("make")(make.command)
app.command("fuse")(fuse.command)
app.command("mine")(mine.command)
app.command("evaluate")(evaluate.command)
app.command("compare")(compare.command)
app.command("calibrate")(calibrate.command)
app.command("encode")(encode.command)
app.command("open")(open.command)
app.add_typer(index.app, name="index")
app.command("watch")(watch.command)
app.command("search", cls=SearchCommand)(search.command)
app.command("serve")(serve.command)
app.command("localize")(localize.command)
app.command("explain")(explain.command)
app.command("export")(export.command)
app.add_typer(data.app, name="data")
app.add_typer(recipes.app, name="recipes")
app.command("doctor")(doctor.command)
app.command("demo")(demo.command)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"diptych {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Image-text matching: train, evaluate and search in both directions."""


def main() -> None:
    """Run the command line; an error is printed as one line, and the exit status is 1."""
    show_warnings()
    try:
        with needs_train():
            app()
    except DiptychError as error:
        print_error(str(error))
        sys.exit(1)
    except OSError as error:
        if error.strerror is None:
            raise
        print_error(f"{error.filename or 'writing'}: {error.strerror}; free space or check the permissions")
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        print_error("out of memory; use smaller batches (--set stage.1.batches.size=64) or --device cpu")
        sys.exit(1)
