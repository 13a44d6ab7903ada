"""`diptych recipes`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text

from diptych.cli.console import print_note, stderr, stdout
from diptych.cli.options import AllowCode, ProfileName, RecipeName
from diptych.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from diptych.training.recipe import Figures, Recipe, Row
    from diptych.training.recipe_catalogue import RecipePaper

app = typer.Typer(help="Look at the recipes.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


@app.command("list")
def list_command(
    which: Annotated[str, typer.Argument(metavar="[PAPER|PART]", help="A paper, or a part of recipes' names.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the recipes that come with Diptych: an overview, those of a paper, or those with a part in their name.

    Examples:

        diptych recipes list

        diptych recipes list vsepp

        diptych recipes list resnet152

        diptych recipes list --json
    """
    from diptych.training.recipe_catalogue import catalogue

    papers = catalogue().papers
    with_profiles = any(profile in which for paper in papers.values() for profile in paper.profiles)
    if which in papers:
        selected = [name for group in papers[which].groups.values() for name in group]
    else:
        names = catalogue().all_names() if with_profiles else catalogue().definitions
        selected = [name for name in names if which in name]
    if not selected:
        known = f"the papers are {', '.join(papers)}"
        raise RecipeError(f"no recipe has {which!r} in its name; {catalogue().suggest(which)} ({known})")
    if as_json:
        stdout.print_json(data=[_to_json(name) for name in selected])
    elif not which:
        _print_overview(papers.values())
    elif which in papers:
        _print_paper(papers[which])
    else:
        _print_recipes(selected)


@app.command("find")
def find_command(
    paper: Annotated[str, typer.Option(help="A paper, as `diptych recipes list` names it.")],
    table: Annotated[str | None, typer.Option(help="A table of the paper: 3, III, 2b.")] = None,
    row: Annotated[str | None, typer.Option(help="A row of the table: its number, or words of it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the recipe that trains a row of a paper's table; without a row, list the rows of the table or the paper.

    The names go to stdout; the published figures, and the recipe if there is only one, go to stderr.

    Examples:

        diptych recipes find --paper vsepp --table 3 --row 17

        diptych recipes find --paper dual_path --table I --row "VGG-19, Stage II"

        diptych recipes find --paper aoq --table 2
    """
    from diptych.training.published_rows import find_rows
    from diptych.training.recipe_loader import recipe_content

    rows = find_rows(paper, table, row)
    if as_json:
        keys = ("recipe", "paper", "table", "row")
        described = [{key: getattr(each, key) for key in keys} for each in rows]
        published = [each.figures.model_dump(mode="json", exclude_none=True) for each in rows]
        stdout.print_json(data=[{**one, "published": other} for one, other in zip(described, published, strict=True)])
    elif row is None:
        listing = Table("table", "row", Column("recipe", no_wrap=True), "data", box=None, pad_edge=False)
        for each in rows:
            listing.add_row(each.table, each.row, f"[bold]{each.recipe}", each.figures.data)
        stdout.print(listing)
    else:
        names = list(dict.fromkeys(each.recipe for each in rows))
        for name in names:
            typer.echo(name)
        for figures in dict.fromkeys(each.figures for each in rows):
            _print_figures(figures)
        if len(names) == 1:
            _print_toml(recipe_content(names[0]), stderr)


@app.command("show")
def show_command(
    recipe: RecipeName,
    full: Annotated[bool, typer.Option("--full", help="With every default written out.")] = False,
    profile: ProfileName = None,
    _allowed_code: AllowCode = None,
) -> None:
    """Print a complete recipe, without a base; what is printed is a recipe file.

    Examples:

        diptych recipes show vsepp > mine.toml

        diptych recipes show vsepp --profile small

        diptych recipes show vsepp --full
    """
    from diptych.training.recipe_loader import load_recipe, profiled_name, recipe_content

    recipe = profiled_name(recipe, profile)
    parsed = load_recipe(recipe)
    _print_toml(parsed.to_dict() if full else recipe_content(recipe), stdout)
    if parsed.paper is not None:
        print_note(f"follows {parsed.paper.reference}")
        for row in parsed.paper.row:
            _print_figures(row)


def _print_overview(papers: Iterable[RecipePaper]) -> None:
    """A few lines per paper, Diptych's own recipes first."""
    overview = Table(Column("paper", no_wrap=True), "recipes", box=None, pad_edge=False)
    for paper in sorted(papers, key=lambda paper: (paper.reference is not None, paper.name != "diptych")):
        source = f" ({paper.reference})" if paper.reference else ""
        count = sum(map(len, paper.groups.values()))
        start = f"{count} recipes; start with {', '.join(paper.start)}"
        text = Text.assemble((paper.title + source, "bold"), "\n", paper.about, "\n", (start, "dim"))
        overview.add_row(Text(paper.name, "bold"), text)
    stdout.print(overview)
    print_note("the recipes of a paper: diptych recipes list PAPER")


def _print_paper(paper: RecipePaper) -> None:
    """The recipes of a paper by group, with the rows of the tables that each one trains."""
    from diptych.training.published_rows import rows_of

    stdout.print(Text(f"{paper.title}{f' ({paper.reference})' if paper.reference else ''}", "bold"))
    for title, names in paper.groups.items():
        stdout.print()
        stdout.print(Text(title))
        items = []
        for name in names:
            labels = ", ".join(dict.fromkeys(row.label for row in rows_of(name) if row.paper == paper.name))
            items.append(Text.assemble((name, "bold"), (f" ({labels})" if labels else "", "dim")))
        _print_flowing(items)
    for name, profile in paper.profiles.items():
        print_note(f"\nany of them {profile.about}: NAME-{name}, or --profile {name}")
    print_note("one recipe: diptych recipes show NAME; the recipe of a row: diptych recipes find")


def _print_flowing(items: Sequence[Text]) -> None:
    """Print items separated by commas, as many to a line as there is room for; none is broken."""
    lines: list[list[Text]] = [[]]
    for item in items:
        if lines[-1] and sum(len(each) + 2 for each in lines[-1]) + len(item) + 3 > stdout.width:
            lines.append([])
        lines[-1].append(item)
    for number, line in enumerate(lines, 1):
        text = Text.assemble("  ", Text(", ").join(line), "," if number < len(lines) else "")
        stdout.print(text, no_wrap=True, overflow="ignore", crop=False)


def _print_recipes(names: Sequence[str]) -> None:
    """One line per recipe, with its title."""
    from diptych.training.recipe_loader import load_recipe

    name_column = Column("recipe", no_wrap=True)  # never cut, so that it can be copied
    listing = Table(name_column, "stages", "what it trains", box=None, pad_edge=False)
    for name in names:
        recipe = load_recipe(name)
        listing.add_row(f"[bold]{name}", str(len(recipe.stage)), recipe.title)
    stdout.print(listing)


def _to_json(name: str) -> dict[str, Any]:
    from diptych.training.recipe_catalogue import catalogue
    from diptych.training.recipe_loader import load_recipe

    recipe: Recipe = load_recipe(name)
    definition = catalogue().find(name)
    assert definition is not None
    return {
        "name": name,
        "title": recipe.title,
        "folder": catalogue().paper_of(definition.name).name,
        "stages": len(recipe.stage),
        "profiles": list(catalogue().profiles_of(definition.name)) if name == definition.name else [],
        "paper": None if recipe.paper is None else recipe.paper.model_dump(mode="json", exclude_none=True),
    }


def _print_toml(content: dict[str, Any], console: Console) -> None:
    import tomli_w

    from diptych.training.recipe import Recipe

    ordered = {key: content[key] for key in (*Recipe.model_fields, *content) if key in content}
    text = re.sub(r"\[\n([^\[\]{}]*?),\n\]", _on_one_line, tomli_w.dumps(ordered))
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default", word_wrap=True))
    else:
        typer.echo(text, nl=False, err=console.stderr)


def _on_one_line(array: re.Match[str]) -> str:
    return f"[{', '.join(line.strip() for line in array[1].split(',' + chr(10)))}]"


def _print_figures(row: Row) -> None:
    source = f" of {row.reference}" if row.reference else ""
    print_note(f"published, row {row.number}{source} ({row.data}):")
    for label, figures in (
        ("image to text", row.i2t),
        ("text to image", row.t2i),
        ("text to text", row.t2t),
        ("phrases", row.phrases),
    ):
        if figures is not None:
            print_note(f"  {label:13}  {_format_figures(figures)}")


def _format_figures(values: Figures) -> str:
    known = [value for value in values if value != "-"]
    digits = 1 if all(round(value, 1) == value for value in known) else 2  # as they were published
    recalls = [
        f"R@{cutoff} {value:.{digits}f}" for cutoff, value in zip((1, 5, 10), values, strict=False) if value != "-"
    ]
    return "  ".join([*recalls, *(f"median rank {value:.1f}" for value in values[3:] if value != "-")])
