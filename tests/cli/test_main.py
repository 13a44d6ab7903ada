import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from diptych import cli
from diptych.cli.main import COMMANDS, app, main

SCENES = "scenes:train=24,val=6,test=6,texts=2"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["evaluate", "runs/none", SCENES], "runs/none: no such run"),
        (["evaluate", "runs/none"], "name the corpus"),
        (["train", "scenes", "nowhere/data"], "nowhere/data: no such file or folder"),
        (["train", "scenes", "scenes:trian=3"], "did you mean 'train'"),
        (["train", "scenes", SCENES, "--set", "stage.1.epoch=3"], "did you mean 'epochs'"),
        (["train", "scenes", SCENES, "--device", "tpu"], "not one of"),
        (["evaluate", "runs/none", SCENES, "--split", "tset"], "did you mean 'test'"),
        (["search", "none.diptych", "x"], "no such index"),
    ],
)
def test_every_error_is_one_line(words, expected, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    assert expected in refused(*words)


def test_main_prints_one_line_and_no_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["diptych", "train", "none", "scenes"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert printed.startswith("diptych: no recipe 'none'")
    assert printed.count("\n") == 1


def test_a_real_process_can_be_interrupted_and_resumed(tmp_path, tiny_settings):
    command = [
        sys.executable,
        "-m",
        "diptych",
        "train",
        "scenes",
        SCENES,
        "--into",
        str(tmp_path / "run"),
        *tiny_settings,
    ]
    many = [*command, "--set", "stage.1.epochs=500"]
    with subprocess.Popen(many, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "stage 1  epoch 2/500" in line:
                break
        process.send_signal(2)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "--resume" in rest
    assert "Traceback" not in rest
    assert (tmp_path / "run" / "last" / "snapshot.safetensors").is_file()


def test_help_has_examples(invoke):
    commands = [[command.name or command.callback.__name__] for command in app.registered_commands]
    for words in (*commands, ["data", "check"], ["recipes", "show"]):
        text = " ".join(invoke(*words, "--help").output.split())
        assert "diptych " + " ".join(words) in text.partition("Usage")[2].partition("Example")[2], words


def test_help_shows_what_the_docstring_says(invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = invoke("watch", "--help").output
    assert "`pip install 'diptych[watch]'` replaces" in shown
    assert (
        "A running `diptych serve` shows the changes without a restart." in shown
    )  # the lines of a paragraph are joined
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    helps = [command.help for group in groups for command in group.registered_commands]
    assert len(helps) > 30
    for text in helps:
        assert not re.search(r"(?<!\\)\[[a-z#/@]", text), text  # would be taken for markup


def test_ctrl_c_while_modules_are_imported_is_no_traceback(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("diptych.cli.main._requested", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


def test_a_run_on_phrases_is_indexed_and_searched_as_any_other(
    phrase_runs, phrase_scenes, phrase_backbone, tmp_path, invoke
):
    index = tmp_path / "scenes.diptych"
    assert invoke("index", phrase_runs[0], phrase_scenes, "--into", index, "--device", "cpu").exit_code == 0
    found = json.loads(invoke("search", index, "a red circle", "-k", "3", "--json", "--device", "cpu").stdout)["hits"]
    assert len(found) == 3
    assert found[0]["score"] >= found[2]["score"]
    assert invoke("search", index, "--like", found[0]["id"], "--to", "texts", "--device", "cpu").exit_code == 0


def test_only_the_requested_command_is_imported():
    program = """if True:
        import sys
        from diptych.cli.main import main
        sys.argv = ["diptych", "search", "none.diptych", "dog"]
        try:
            main()
        except SystemExit:
            pass
        print([name for name in ("train", "evaluate", "serve", "search") if f"diptych.cli.{name}" in sys.modules])
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "['search']\n"
    assert ended.stderr.count("\n") == 1


def test_every_module_of_a_command_is_offered():
    assert set(get_command(app).commands) == set(COMMANDS)
    modules = {file.stem for file in Path(cli.__file__).parent.glob("*.py")}
    with_a_command = {
        name for name in modules if {"command", "app"} & vars(import_module(f"diptych.cli.{name}")).keys()
    }
    assert with_a_command - {"main"} == set(COMMANDS)
