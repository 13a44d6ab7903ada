"""`diptych recipes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.syntax import Syntax
from rich.table import Column, Table

from diptych.cli.console import print_note, stdout
from diptych.errors import RecipeError, did_you_mean

if TYPE_CHECKING:
    from diptych.training.recipe import Figures

app = typer.Typer(help="Look at the recipes.", no_args_is_help=True)


@app.command("list")
def list_command(
    part: Annotated[str, typer.Argument(metavar="[NAME]", help="All that have this in their name.")] = "",
) -> None:
    """List the recipes that come with Diptych; without a name, the first of each family.

    Examples:

        diptych recipes list

        diptych recipes list vsrn
    """
    from diptych.training.recipe_catalogue import recipe_names
    from diptych.training.recipe_loader import load_recipe

    names = [name for name in recipe_names() if part in name]
    if not names:
        raise RecipeError(f"no recipe with {part!r} in its name; {did_you_mean(part, recipe_names())}")
    families = _families(names)
    name_column = Column("recipe", no_wrap=True)  # whole, to be copied
    table = Table(name_column, "stages", "what it trains", box=None, pad_edge=False)
    for name in names if part else families:
        recipe = load_recipe(name)
        more = f" [dim]({len(families[name])} more)" if not part and families[name] else ""
        table.add_row(f"[bold]{name}", str(len(recipe.stage)), recipe.title + more)
    stdout.print(table)
    if not part:
        print_note("all of a family, such as the rows of a paper: diptych recipes list NAME")


def _families(names: list[str]) -> dict[str, list[str]]:
    """The names that no other begins, each with those that it begins: `vsepp` with `vsepp-small`."""
    families: dict[str, list[str]] = {}
    for name in sorted(names, key=len):
        first = next((root for root in families if name.startswith(f"{root}-")), None)
        if first is None:
            families[name] = []
        else:
            families[first].append(name)
    return dict(sorted(families.items()))


@app.command("show")
def show_command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or a .toml file.")],
    full: Annotated[bool, typer.Option("--full", help="With every default written out.")] = False,
) -> None:
    """Print a recipe; what it prints is a recipe file.

    Examples:

        diptych recipes show vsepp > mine.toml

        diptych recipes show vsepp --full
    """
    from diptych.training.recipe_loader import load_recipe, recipe_text

    parsed = load_recipe(recipe)
    text = parsed.to_toml() if full else recipe_text(recipe)[0]
    if stdout.is_terminal:
        stdout.print(Syntax(text, "toml", background_color="default", word_wrap=True))
    else:
        typer.echo(text, nl=False)
    if parsed.paper is not None:
        print_note(f"follows {parsed.paper.reference}")
        for row in parsed.paper.row:
            whose = f" of {row.reference}" if row.reference else ""
            print_note(f"published, row {row.number}{whose} ({row.data}):")
            for label, figures in (
                ("image to text", row.i2t),
                ("text to image", row.t2i),
                ("text to text", row.t2t),
                ("phrases", row.phrases),
            ):
                if figures is not None:
                    print_note(f"  {label:13}  {_figures(figures)}")


def _figures(values: Figures) -> str:
    known = [value for value in values if value != "-"]
    digits = 1 if all(round(value, 1) == value for value in known) else 2  # as they were published
    recalls = [
        f"R@{cutoff} {value:.{digits}f}" for cutoff, value in zip((1, 5, 10), values, strict=False) if value != "-"
    ]
    return "  ".join([*recalls, *(f"median rank {value:.1f}" for value in values[3:] if value != "-")])
