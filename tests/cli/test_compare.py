"""`diptych compare` as people use it."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.data.open import open_corpus
from diptych.errors import DiptychError
from diptych.training.origin import Origin
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

SCENES = "scenes:train=16,val=6,test=6,texts=2"
TINY = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2", "model.image.pixels=32"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    corpus = open_corpus(SCENES)
    for name, seed in (("vse[0]", 0), ("vsepp", 1)):
        recipe = load_recipe("scenes", [*TINY, "stage.2.epochs=1", f"seed={seed}"])
        train(recipe, corpus, folder / name, device="cpu", workers=0)
        Origin(SCENES, corpus.digest()).save(folder / name)
    return [str(folder / name) for name in ("vse[0]", "vsepp")]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def invoke(*words):
    return CliRunner().invoke(app, ["compare", *map(str, words), "--device", "cpu"])


def refused(*words):
    """The one line that the command refuses with."""
    result = invoke(*words)
    assert isinstance(result.exception, DiptychError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_it_prints_a_table_and_writes_a_page(runs, tmp_path):
    found = invoke(*runs, "--seed", "7")
    assert found.exit_code == 0, found.output
    assert "vse[0]" in found.stdout
    assert "6 images, 12 texts" in found.stdout
    assert found.stderr == "wrote compare.html\n"
    html = (tmp_path / "compare.html").read_text()
    assert '<h1 dir="auto">vse[0] and vsepp</h1>' in html
    assert "Random sample, seed 7" in html
    again = invoke(*runs, "--data", SCENES, "--into", "new/again.html", "--seed", "7", "--workers", "0")
    assert again.stdout == found.stdout
    assert (tmp_path / "new" / "again.html").read_text() == html


def test_the_suffix_says_what_is_written(runs, tmp_path):
    found = invoke(*runs, "--into", "a.md", "--into", "a.JSON", "--into", "a.html", "--json")
    told = json.loads(found.stdout)
    assert told["baseline"] == "vse[0]"
    assert told["data"]["address"] == SCENES
    assert json.loads((tmp_path / "a.JSON").read_text()) == told
    assert "| vsepp − vse\\[0\\] |" in (tmp_path / "a.md").read_text()
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert found.stderr.splitlines() == ["wrote a.md", "wrote a.JSON", "wrote a.html"]
    assert not (tmp_path / "compare.html").exists()


def test_it_reads_another_split_other_data_and_folds(runs):
    assert "scenes, split val" in invoke(*runs, "--split", "val").stdout
    assert "8 images, 16 texts" in invoke(*runs, "--data", "scenes:train=2,val=2,test=8,texts=2").stdout
    assert "2 folds of 3 images" in invoke(*runs, "--folds", "2").stdout


def test_data_that_changed_is_one_note(runs, tmp_path):
    for run, name in zip(runs, "ab", strict=True):
        shutil.copytree(run, tmp_path / name)
    Origin(SCENES, "another").save(tmp_path / "b")
    found = invoke("a", "b")
    assert found.exit_code == 0, found.output
    assert found.stderr.splitlines() == [
        f"{SCENES}: now holds other data than b was trained on",
        "wrote compare.html",
    ]


def test_refusals_are_one_line(runs, tmp_path):
    assert "only one run; name at least two runs" in refused(runs[0])
    assert "the run was named twice" in refused(*runs, runs[0])
    assert "none: no such run" in refused(runs[0], "none", "--data", SCENES)
    assert "scenes: no such run; name folders that `diptych train` made, and the data with --data" in refused(
        *runs, "scenes"
    )
    assert "no split 'tset'; did you mean 'test'?" in refused(*runs, "--split", "tset")
    assert "split restval has no images" in refused(*runs, "--split", "restval")
    assert "is a folder; name a file" in refused(*runs, "--into", tmp_path)
    assert "table.tex: unknown format; name a file that ends in .html, .md, .json" in refused(
        *runs, "--into", "a.html", "--into", "table.tex"
    )
    fresh = tmp_path / "fresh"
    shutil.copytree(runs[1], fresh)
    (fresh / "metrics.jsonl").write_text("")
    assert "fresh/metrics.jsonl: no finished epoch" in refused(runs[0], "fresh")
    (fresh / "data.json").unlink()
    assert "fresh: does not say what it was trained on (it has no data.json); name it with --data" in refused(
        runs[0], "fresh"
    )
    Origin("/data/gone", "x").save(fresh)
    assert f"{runs[0]} was trained on {SCENES}, fresh on /data/gone; name the data" in refused(runs[0], "fresh")
    shutil.copytree(fresh, tmp_path / "as-fresh")
    assert "fresh: what it was trained on cannot be opened (/data/gone: no such file or folder" in refused(
        "fresh", "as-fresh"
    )
    assert not list(tmp_path.glob("*.html"))
