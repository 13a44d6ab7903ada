"""The commands of README and docs that train name recipes and settings that are there, and word vectors if needed."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from diptych.errors import RecipeError
from diptych.models.layers.word_table import WordTableTower
from diptych.models.tower import TextTowerSettings
from diptych.training.recipe_loader import load_recipe

ROOT = Path(__file__).parent.parent
PAGES = {page.relative_to(ROOT).as_posix(): page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]}


def commands(text):
    """The words of each command in a page's code blocks that trains; a command may go on in the next line."""
    for block in re.findall(r"^ *```[^\n]*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            for command in line.split("&&"):
                if command.strip().startswith("diptych train "):
                    yield tuple(shlex.split(command, comments=True))


def mistake(command):
    """What is wrong with a command: its recipe, a setting, or word vectors that it needs and does not name."""
    _, _, name, *arguments = command
    if name.isupper() or name.endswith(".toml"):
        return None  # the reader's own
    changes = [value for option, value in pairwise(arguments) if option == "--set"]
    try:
        recipe = load_recipe(name, changes)
    except RecipeError as error:
        return str(error)
    text = getattr(recipe.model, "text", None)
    tower = text.build(words=10) if isinstance(text, TextTowerSettings) else None
    needs = recipe.text.use != "start" or isinstance(tower, WordTableTower)
    return "needs text.vectors" if needs and recipe.text.vectors is None else None


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_trains_can_work(page):
    wrong = {shlex.join(command): mistake(command) for command in commands(PAGES[page].read_text(encoding="utf-8"))}
    assert {command: told for command, told in wrong.items() if told} == {}


def test_the_commands_are_found():
    found = {command for page in PAGES.values() for command in commands(page.read_text(encoding="utf-8"))}
    assert len(found) > 20
    assert {"dual-path-small", "dual-path-pedes-small", "vsrn", "cca-small"} <= {command[2] for command in found}


PAGE = """Text with `diptych train nothing DATA`.

```sh
diptych data check DATA
diptych train vsepp DATA --set seed=3 \\
    --set stage.1.epochs=18    # --set seed=4
diptych train vsrn DATA && diptych train scan-t2i DATA
```

diptych train no-code DATA
"""


def test_commands_of_a_page():
    assert list(commands(PAGE)) == [
        ("diptych", "train", "vsepp", "DATA", "--set", "seed=3", "--set", "stage.1.epochs=18"),
        ("diptych", "train", "vsrn", "DATA"),
        ("diptych", "train", "scan-t2i", "DATA"),
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("RECIPE DATA", None),
        ("mine.toml DATA", None),
        ("vsepp DATA", None),
        ("vsep DATA", "no recipe 'vsep'"),
        ("vsepp DATA --set stage.2.epochs=3", "there are stages 1 to 1"),
        ("dual-path-pedes-small DATA", "needs text.vectors"),
        ("dual-path-pedes-small DATA --set text.use=start", None),
        ("dual-path-pedes-small DATA --into runs/person --set text.vectors=glove.txt", None),
        ("cca-small DATA", "needs text.vectors"),
        ("cca-small DATA --set text.vectors=glove.txt", None),
    ],
)
def test_mistakes_are_found(arguments, told):
    found = mistake(("diptych", "train", *arguments.split()))
    assert found is None if told is None else told in found
