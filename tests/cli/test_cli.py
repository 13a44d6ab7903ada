"""The command line as people use it: in process for speed, once as a real process."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from diptych.cli.main import app, main
from diptych.data.open import open_corpus
from diptych.errors import DiptychError

SCENES = "scenes:train=24,val=6,test=6,texts=2"
PEOPLE = f"{SCENES},images=2"  # a text has several right images
TINY = [
    *("--set", "model.joint=16", "--set", "model.text.hidden=16", "--set", "model.text.word=8"),
    *("--set", "model.image.width=2", "--set", "model.image.pixels=32"),
    *("--set", "stage.1.batches.size=16", "--set", "stage.2.batches.size=16", "--set", "stage.2.epochs=1"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = invoke("train", "scenes", SCENES, "--into", str(folder), "--device", "cpu", *TINY)
    assert result.exit_code == 0, result.output
    return folder


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def refused(*words):
    """The one line that a command refuses with."""
    result = invoke(*words)
    assert result.exit_code != 0
    assert isinstance(result.exception, DiptychError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_train_writes_a_run_with_its_report(run):
    assert (run / "best" / "weights.safetensors").is_file()
    assert "<html" in (run / "report.html").read_text()


def test_reports_have_map_where_a_text_has_several_images_or_on_demand(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    report = folder / "report.html"
    for data, options, shown in (
        (SCENES, (), False),
        (SCENES, ("--map",), True),
        (PEOPLE, (), True),
    ):
        told = invoke("evaluate", str(folder), data, "--report", "--json", *options)
        assert told.exit_code == 0, told.output
        metrics = json.loads(told.stdout)["metrics"]
        assert ("t2i_map" in metrics) == shown
        page = report.read_text()
        assert ('<th scope="col">mAP</th>' in page) == shown
        if shown:
            cells = re.findall(r'<td data-label="mAP">\s*<span class="value">([^<]*)<', page)
            assert cells == [f"{metrics[name]:.1f}" for name in ("i2t_map", "t2i_map")]


def test_the_report_after_training_has_map_and_several_runs_have_it_each_time(tmp_path):
    words = ("train", "scenes", PEOPLE, "--into", str(tmp_path / "runs"), "--device", "cpu", "--seeds", "1", *TINY)
    assert invoke(*words).exit_code == 0
    assert '<th scope="col">mAP</th>' in (tmp_path / "runs" / "seed-0" / "report.html").read_text()
    first = json.loads((tmp_path / "runs" / "summary.json").read_text())
    assert {"i2t_map", "t2i_map"} <= first["runs"]["seed-0"].keys()
    assert invoke(*words).exit_code == 0  # measures what is there
    assert json.loads((tmp_path / "runs" / "summary.json").read_text()) == first


def test_evaluate_a_run(run, tmp_path):
    printed = invoke("evaluate", str(run), SCENES, "--into", str(tmp_path / "result.json"))
    assert printed.exit_code == 0
    assert "R@1" in printed.output
    assert "6 images" in printed.output
    saved = json.loads((tmp_path / "result.json").read_text())
    again = json.loads(invoke("evaluate", str(run), SCENES, "--json").stdout)
    assert again == saved
    assert set(saved["metrics"]) >= {"i2t_r1", "t2i_r10", "rsum"}


def test_evaluate_saved_encodings_and_ensembles_of_them(run, tmp_path):
    file = tmp_path / "test.safetensors"
    assert invoke("encode", str(run), SCENES, "--into", str(file)).exit_code == 0
    of_run = json.loads(invoke("evaluate", str(run), SCENES, "--json").stdout)
    assert json.loads(invoke("evaluate", str(file), "--json").stdout) == of_run
    # a run averaged with itself is itself, however it is given
    assert json.loads(invoke("evaluate", str(run), str(run), SCENES, "--json").stdout)["metrics"] == of_run["metrics"]
    assert json.loads(invoke("evaluate", str(file), str(file), "--json").stdout)["metrics"] == of_run["metrics"]
    other = tmp_path / "val.safetensors"
    assert invoke("encode", str(run), SCENES, "--split", "val", "--into", str(other)).exit_code == 0
    assert "differ in their corpus" in refused("evaluate", str(file), str(other))


def test_evaluate_a_score_matrix(tmp_path):
    scores = np.full((6, 12), -1.0, np.float32)
    scores[np.arange(12) // 2, np.arange(12)] = 1  # the scenes' texts follow their images
    np.save(tmp_path / "scores.npy", scores)
    found = json.loads(invoke("evaluate", str(tmp_path / "scores.npy"), SCENES, "--json").stdout)
    assert found["metrics"]["rsum"] == 600
    np.save(tmp_path / "small.npy", scores[:5])
    assert "5 images and 12 texts" in refused("evaluate", str(tmp_path / "small.npy"), SCENES)
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    assert "objects.npy" in refused("evaluate", str(tmp_path / "objects.npy"), SCENES)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "scores.npy").read_bytes()[:100])
    assert "cut.npy: not a whole .npy file" in refused("evaluate", str(tmp_path / "cut.npy"), SCENES)
    scores[1, 3] = np.nan
    np.save(tmp_path / "nan.npy", scores)
    assert "nan.npy: image 1 and text 3" in refused("evaluate", str(tmp_path / "nan.npy"), SCENES)


def test_encode_names_texts_without_a_known_word(run, tmp_path, monkeypatch):
    words = ("encode", str(run), SCENES, "--into", str(tmp_path / "test.safetensors"))
    assert "knows" not in invoke(*words).stderr
    corpus = open_corpus(SCENES)
    changed = replace(corpus, texts=[*corpus.texts[:-2], "Xyzzy", "Qwx"])
    monkeypatch.setattr("diptych.data.open.open_corpus", lambda address: changed)
    told = invoke(*words)
    assert told.exit_code == 0
    assert "2 of 12 texts contain no word that the run knows; the first is 'Xyzzy'" in told.stderr


def test_encodings_need_no_corpus_and_a_folder_is_no_file(run, tmp_path):
    file = tmp_path / "test.safetensors"
    assert invoke("encode", str(run), SCENES, "--into", str(file)).exit_code == 0
    assert "remove the corpus" in refused("evaluate", str(file), SCENES)
    assert "is a folder" in refused("encode", str(run), SCENES, "--into", str(tmp_path))


def test_odd_score_matrices_are_one_line(tmp_path):
    scores = np.zeros((6, 12), ">f4")
    np.save(tmp_path / "big.npy", scores)
    assert "big.npy" in refused("evaluate", str(tmp_path / "big.npy"), SCENES)
    np.savez(tmp_path / "many.npz", a=scores)
    (tmp_path / "many.npz").rename(tmp_path / "many.npy")
    assert "an archive of arrays" in refused("evaluate", str(tmp_path / "many.npy"), SCENES)


def test_resume_through_the_command_line(run):
    words = ["train", "scenes", SCENES, "--into", str(run), *TINY]
    assert "--resume" in refused(*words)
    assert invoke(*words, "--resume").exit_code == 0


def test_data_check(tmp_path):
    assert "train" in invoke("data", "check", SCENES).output
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "table.csv").write_text("image,text,split\na.png,one,train\nb.png,two,test\nc.png,three,test\n")
    checked = invoke("data", "check", str(tmp_path / "table.csv"), "--json")
    assert checked.exit_code == 1
    problems = "\n".join(map(str, json.loads(checked.stdout)["problems"]))
    assert "b.png" in problems
    assert "c.png" in problems


def test_recipes(tmp_path):
    assert "vsepp" in invoke("recipes", "list").output
    shown = invoke("recipes", "show", "vsepp")
    file = tmp_path / "mine.toml"
    file.write_text(shown.stdout)
    assert 'negatives = "max"' in invoke("recipes", "show", str(file), "--full").stdout
    assert "did you mean 'vsepp'" in refused("recipes", "show", "vsep")


def test_doctor_finds_the_installation_working():
    checked = invoke("doctor")
    assert checked.exit_code == 0
    assert "works" in checked.output
    assert "torch" in checked.output


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
def test_every_error_is_one_line(words, expected, tmp_path, monkeypatch):
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


def test_a_real_process_can_be_interrupted_and_resumed(tmp_path):
    command = [sys.executable, "-m", "diptych", "train", "scenes", SCENES, "--into", str(tmp_path / "run"), *TINY]
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


def test_help_has_examples():
    for words in (["train"], ["evaluate"], ["encode"], ["search"], ["data", "check"], ["recipes", "show"]):
        assert "diptych " + " ".join(words) in " ".join(invoke(*words, "--help").output.split())


def test_the_readme_example_runs(tmp_path, monkeypatch):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    assert len(code.strip().splitlines()) < 15
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "runs" / "readme" / "best" / "weights.safetensors").is_file()
