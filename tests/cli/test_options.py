import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.cli.options import thread_count
from diptych.errors import PluginError
from diptych.machine import available_cores
from diptych.plugins import is_allowed
from support.plugins import LOSS


def test_threads_default_to_the_cores():
    assert thread_count(None) == available_cores() > 0
    assert thread_count(0) == 0
    assert thread_count(3) == 3


COMMANDS = {
    **{name: [name] for name in ("train", "sweep", "evaluate", "compare", "mine", "encode", "search", "serve")},
    **{name: [name] for name in ("export", "explain", "localize")},
    "index": ["index", "run", "source"],
    "rebuild": ["index", "rebuild"],
    "show": ["recipes", "show"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_that_opens_a_recipe_or_a_run_can_allow_code(words):
    assert "--allow-code" in CliRunner().invoke(app, [*words, "--help"]).output


@pytest.mark.parametrize("words", [words for name, words in COMMANDS.items() if name not in ("localize", "show")])
def test_every_command_that_opens_a_pair_can_download(words):
    assert "--download" in CliRunner().invoke(app, [*words, "--help"]).output


@pytest.fixture
def recipe(own_modules, tmp_path, monkeypatch):
    """A recipe with an objective of its own, and the working directory with the module that the objective is in."""
    file = tmp_path / "mine.toml"
    file.write_text('base = "scenes"\n[stage.1]\nobjective = { name = "my_losses:Exponential" }\n')
    own_modules.write("my_losses", LOSS)
    monkeypatch.chdir(own_modules.folder)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(own_modules.folder))])
    return str(file)


def test_the_working_directory_is_searched_if_code_is_allowed(recipe):
    shown = CliRunner().invoke(app, ["recipes", "show", recipe, "--full"])
    assert "the module 'my_losses' is not allowed" in str(shown.exception)
    assert str(Path.cwd()) not in sys.path
    shown = CliRunner().invoke(app, ["recipes", "show", recipe, "--full", "--allow-code", "my_losses"])
    assert shown.exit_code == 0
    assert 'name = "my_losses:Exponential"' in shown.output
    assert sys.path[-1] == str(Path.cwd())  # last, so that it hides nothing that is installed


def test_several_modules_can_be_allowed(recipe):
    CliRunner().invoke(app, ["recipes", "show", recipe, "--allow-code", "my_losses", "--allow-code", "my_pack.inner"])
    assert [is_allowed(name) for name in ("my_losses", "my_pack.inner", "my_pack")] == [True, True, False]


def test_what_is_allowed_must_be_a_module(recipe):
    shown = CliRunner().invoke(app, ["recipes", "show", recipe, "--allow-code", "my_losses.py:x"])
    assert isinstance(shown.exception, PluginError)
    assert str(Path.cwd()) not in sys.path
