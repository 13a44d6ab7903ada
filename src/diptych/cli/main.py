"""The command line; each command is a thin shell around functions of the library.

Only the module of the requested command is imported, and commands import what they need when they run: importing torch
takes seconds, which help and completion should not wait for.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import typer
from rich.markup import escape

from diptych import __version__
from diptych.cli.console import print_error, show_warnings
from diptych.errors import DiptychError
from diptych.optional import needs_train

# Must be set before torch is imported. By default, waiting OpenMP threads spin for a long time and take the cores from
# working threads: on a busy machine, training becomes several times slower.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# One module each, which has a `command`, or an `app` of several; the order is that of the help.
COMMANDS = (
    *("features", "train", "sweep", "reproduce", "make", "fuse", "mine", "evaluate", "calibrate", "compare"),
    *("encode", "open", "index", "watch", "search", "album", "serve", "localize", "explain", "export"),
    *("data", "recipes", "doctor", "demo"),
)


def command_line(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    made = typer.Typer(
        name="diptych",
        help="Image-text matching: train, evaluate and search in both directions.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=True,
    )
    made.callback()(options)
    for name in names:
        module = import_module(f"diptych.cli.{name}")
        if hasattr(module, "app"):
            made.add_typer(module.app, name=name)
        else:
            made.command(name, cls=getattr(module, "COMMAND_CLASS", None))(module.command)
    for group in (made, *(each.typer_instance for each in made.registered_groups)):
        for command in group.registered_commands if group is not None else ():
            command.help = command.help or _help(command.callback)
    return made


def _help(command: Any) -> str:
    """The docstring of a command for Typer, which takes `[watch]` for markup and keeps the line ends of paragraphs."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return escape("\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in paragraphs))


@cache
def _whole() -> typer.Typer:
    return command_line()


def __getattr__(name: str) -> Any:
    if name == "app":
        return _whole()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"diptych {__version__}")
        raise typer.Exit


def options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Image-text matching: train, evaluate and search in both directions."""


def main() -> None:
    """Run the command line; an error is printed as one line, and the exit status is 1."""
    show_warnings()
    try:
        with needs_train():
            _requested(sys.argv[1:])()
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
    except KeyboardInterrupt:  # before the command runs, which Typer would end in this way
        sys.exit(130)


def _requested(words: Sequence[str]) -> typer.Typer:
    """The command line with the command that these words begin with, or with all commands."""
    if not words or words[0] not in COMMANDS:
        return _whole()
    if words[0] in ("search", "serve"):
        gc.disable()  # importing modules leaves no garbage; `serve` enables it again before it serves
    if words[0] == "search":
        # Read when NumPy is imported. A query is one row, for which threads would wait longer than they compute.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return command_line(words[:1])
