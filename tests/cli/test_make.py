"""`diptych make` as people use it."""

import pytest
import torch

from diptych.errors import RecipeError
from diptych.model import Model
from diptych.models.matchers import classes

COMMAND = ("make",)


@pytest.fixture(autouse=True)
def tiny(small_backbones, monkeypatch):
    monkeypatch.setattr(classes, "load_classifier", lambda *_: torch.nn.Linear(6, 3))
    with small_backbones():
        yield


def test_a_run_is_made_without_data(invoke, tmp_path, monkeypatch):
    (tmp_path / "names.txt").write_text("dog\tHund\ncat\nhorse\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = ("--set", "model.names=names.txt", "--set", "model.top=2", "--set", "model.image.side=32")
    result = invoke("classes", *options)
    assert result.exit_code == 0, result.output
    assert "made runs/classes" in result.stdout
    assert "diptych index runs/classes PHOTOS" in result.stderr
    assert Model.load("runs/classes", "cpu").matcher.settings.names == ("dog\tHund", "cat", "horse")


def test_mistakes_are_one_line(refused, tmp_path):
    into = ("--into", tmp_path / "run")
    assert "has stages to train" in refused("scenes", *into, error=RecipeError)
    assert "no such list of class names" in refused("classes", "--set", "model.names=names.txt", *into)
    (tmp_path / "names.txt").write_text("dog\ncat\ndog\n")
    file = tmp_path / "names.txt"
    assert f"{file}:3: the name 'dog' is that of line 1" in refused("classes", "--set", f"model.names={file}", *into)
    assert not (tmp_path / "run").exists()


def test_help_has_examples(invoke):
    assert "diptych make classes --into runs/classes" in invoke("--help").output
