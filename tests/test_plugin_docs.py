"""docs/extend/plugin.md: its files, commands and tables do what the page says."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import diptych
from diptych.cli.main import app
from diptych.plugins import GROUPS, allow_code
from diptych.training.recipe_loader import load_recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "extend" / "plugin.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
FILES = {match[1]: code for _, code in BLOCKS if (match := re.match(r"# (\S+\.\w+)\n", code))}
PYTHON = [code for language, code in BLOCKS if language == "python" and not code.startswith(("#", " "))]
COMMANDS = [line for language, code in BLOCKS if language == "sh" for line in code.splitlines()]
SMALL = ["model.joint=8", "model.text.hidden=8", "model.image.width=2", "model.image.pixels=16", "stage.2.epochs=1"]
SCENES = "scenes:train=8,val=4,test=4"


@pytest.fixture
def folder(own_modules, monkeypatch):
    """The working directory with the files of the page; its modules are found only if code is allowed."""
    own_modules.write("my_losses", FILES["my_losses.py"])
    (own_modules.folder / "mine.toml").write_text(FILES["mine.toml"])
    monkeypatch.chdir(own_modules.folder)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(own_modules.folder))])
    return own_modules.folder


def test_the_commands_of_the_page(folder):
    assert len(COMMANDS) == 3
    for command in COMMANDS:
        _, *words = [SCENES if word == "scenes" else word for word in shlex.split(command)]
        changes = [f"--set={change}" for change in SMALL] if words[0] == "train" else []
        done = CliRunner().invoke(app, [*words, *changes, "--device", "cpu"])
        assert done.exit_code == 0, (command, done.exception)
    assert "my_losses" in (folder / "runs" / "mine" / "plugins.json").read_text()
    assert load_recipe("runs/mine/recipe.toml").stage[0].objective.scale == 3.0


def test_the_program_of_the_page(folder, monkeypatch):
    (program,) = PYTHON
    sys.path.append(str(folder))
    monkeypatch.setattr(diptych, "allow_code", allow_code, raising=False)
    program = program.replace('"scenes", [', f'"scenes", {SMALL} + [').replace(
        'open_corpus("scenes")', f'open_corpus("{SCENES}")'
    )
    exec(compile(program, "plugin.md", "exec"), {})
    assert (folder / "runs" / "mine-too" / "best" / "weights.safetensors").is_file()


def test_the_entry_points_of_the_page_are_those_of_the_example():
    shown = tomllib.loads(FILES["pyproject.toml"])["project"]["entry-points"]
    project = tomllib.loads((ROOT / "examples" / "plugin" / "pyproject.toml").read_text())["project"]
    assert shown.keys() == project["entry-points"].keys() == {f"diptych.{group}" for group in GROUPS.keys() - {"needs"}}
    for group, points in shown.items():
        assert points.items() <= project["entry-points"][group].items()


def test_the_table_lists_every_group():
    assert re.findall(r"^\| `diptych\.(\w+)` \|", TEXT, re.MULTILINE) == list(GROUPS)


def test_the_need_of_the_page_is_that_of_the_example():
    (block,) = (code for language, code in BLOCKS if language == "python" and code.startswith("    "))
    assert block in (ROOT / "examples/plugin/src/diptych_example/group_balanced.py").read_text()


def test_the_files_that_the_pages_mention_exist():
    named = set(re.findall(r"`(examples/[\w/.]+)`", TEXT))
    assert len(named) >= 3
    assert all((ROOT / file).exists() for file in named)
