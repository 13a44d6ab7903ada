"""`diptych compare` as people use it."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.data.open import open_corpus
from diptych.data.origin import Origin
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.localisation.phrase_metrics import paired_phrase_difference
from diptych.evaluation.metrics.paired_difference import paired_difference
from diptych.evaluation.runs import evaluate
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

COMMAND = ("compare", "--device", "cpu")

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


def test_it_prints_a_table_and_writes_a_page(runs, tmp_path, invoke):
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


def test_the_suffix_selects_the_format(runs, tmp_path, invoke):
    found = invoke(*runs, "--into", "a.md", "--into", "a.JSON", "--into", "a.html", "--json")
    told = json.loads(found.stdout)
    assert told["baseline"] == "vse[0]"
    assert told["data"]["address"] == SCENES
    assert json.loads((tmp_path / "a.JSON").read_text()) == told
    assert "| vsepp − vse\\[0\\] |" in (tmp_path / "a.md").read_text()
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert found.stderr.splitlines() == ["wrote a.md", "wrote a.JSON", "wrote a.html"]
    assert not (tmp_path / "compare.html").exists()


def test_split_data_and_folds_are_used(runs, invoke):
    assert "scenes, split val" in invoke(*runs, "--split", "val").stdout
    assert "8 images, 16 texts" in invoke(*runs, "--data", "scenes:train=2,val=2,test=8,texts=2").stdout
    assert "2 folds of 3 images" in invoke(*runs, "--folds", "2").stdout


def test_changed_data_is_noted(runs, tmp_path, invoke):
    for run, name in zip(runs, "ab", strict=True):
        shutil.copytree(run, tmp_path / name)
    Origin(SCENES, "another").save(tmp_path / "b")
    found = invoke("a", "b")
    assert found.exit_code == 0, found.output
    assert found.stderr.splitlines() == [
        f"{SCENES}: has changed since b was trained on it",
        "wrote compare.html",
    ]


def test_errors_are_one_line(runs, tmp_path, refused):
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
    assert "fresh: its training data cannot be opened (/data/gone: no such file or folder" in refused(
        "fresh", "as-fresh"
    )
    assert not list(tmp_path.glob("*.html"))


def test_runs_on_phrases_are_compared_by_localisation(phrase_runs, phrase_scenes, phrase_backbone, tmp_path, invoke):
    result = invoke(*phrase_runs, "--data", phrase_scenes, "--into", "c.md", "--into", "c.json", "--json")
    content = json.loads(result.stdout)
    assert content == json.loads((tmp_path / "c.json").read_text())
    found = [evaluate_phrases(run, phrase_scenes, device="cpu") for run in phrase_runs]
    assert [run["metrics"] for run in content["runs"]] == [each.metrics for each in found]
    assert content["runs"][1]["difference"] == paired_phrase_difference(*found).to_json()
    assert "| seed-1 − seed-0 |" in (tmp_path / "c.md").read_text()
    assert result.stderr.splitlines() == ["wrote c.md", "wrote c.json"]
    table = invoke(*phrase_runs, "--data", phrase_scenes).stdout
    assert f"{len(found[0])} phrases in 4 images" in table
    assert "…" not in table
    assert not (tmp_path / "compare.html").exists()


def test_what_a_comparison_of_phrases_does_not_support(phrase_runs, tmp_path, refused):
    assert "remove --folds" in refused(*phrase_runs, "--folds", "2")
    assert "ends in .md or .json, not c.html" in refused(*phrase_runs, "--into", "c.html")
    (tmp_path / "other").mkdir()
    line = refused("other", phrase_runs[0])
    assert line == f"other: was not trained on phrases, but {phrase_runs[0]} was; compare runs of the same task"


def test_folders_of_seeds_are_compared_seed_by_seed(tmp_path, invoke, refused):
    tiny = [word for setting in [*TINY, "stage.2.epochs=1"] for word in ("--set", setting)]
    for name in ("sum", "max"):
        words = ("--seeds", "2", "--into", name, *tiny, "--set", f"stage.2.objective.negatives={name}")
        found = CliRunner().invoke(app, ["train", "scenes", SCENES, "--device", "cpu", "--workers", "0", *words])
        assert found.exit_code == 0, found.output
    found = invoke("sum", "max", "--into", "c.md", "--into", "c.json", "--json")
    content = json.loads(found.stdout)
    assert content == json.loads((tmp_path / "c.json").read_text())
    runs = [[evaluate(f"{name}/seed-{seed}", SCENES, device="cpu") for seed in (0, 1)] for name in ("sum", "max")]
    for recipe, results in zip(content["recipes"], runs, strict=True):
        assert recipe["runs"]["seed-1"] == results[1].metrics.to_json()
    pairs = [paired_difference(first.folds, second.folds) for first, second in zip(*runs, strict=True)]
    difference = content["recipes"][1]["difference"]["rsum"]
    assert difference["by_seed"] == pytest.approx([pair.rsum.value for pair in pairs])
    assert "| max − sum |" in (tmp_path / "c.md").read_text()
    assert "seed-0, seed-1" in invoke("sum", "max").stdout
    assert not (tmp_path / "compare.html").exists()
    assert "ends in .md or .json, not c.html" in refused("sum", "max", "--into", "c.html")
    assert "is not a folder of runs with several seeds" in refused("sum", "max/seed-0")
