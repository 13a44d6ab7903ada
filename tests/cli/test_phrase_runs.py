"""Runs that were trained on phrases, in all commands that take a run."""

import json

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.data.open import open_corpus
from diptych.errors import DiptychError
from diptych.evaluation.localisation.localise import evaluate_phrases
from diptych.evaluation.metrics.paired_difference import paired_phrase_difference

SCENES = "scenes:train=8,val=3,test=4,texts=2"
TINY = [
    *("model.image.side=64", "model.image.regions.count=40", "model.image_layers=[8, 4]", "model.text_layers=[8, 4]"),
    *("stage.1.epochs=1", "stage.1.batches.size=16"),
]


@pytest.fixture(scope="module", autouse=True)
def tiny_backbone(small_regions):
    with small_regions(open_corpus(SCENES)):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def invoke(*words):
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])


def train(command, *words):
    settings = [word for setting in TINY for word in ("--set", setting)]
    result = invoke(command, "phrases-scenes", SCENES, "--workers", "0", *settings, *words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words):
    """The one line that a command refuses with."""
    result = invoke(*words)
    assert isinstance(result.exception, DiptychError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.fixture(scope="module")
def seeds(folder, tiny_backbone):
    """Two runs, and what was printed when they were trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return train("train", "--seeds", "2", "--into", "seeds"), ["seeds/seed-0", "seeds/seed-1"]


def test_a_run_has_a_report_of_phrases(folder):
    told = train("train", "--into", "one")
    assert "trained one, report one/report.html" in told.stdout
    page = (folder / "one" / "report.html").read_text()
    assert 'id="phrases"' in page
    assert "scenes, split val" in page
    again = invoke("evaluate", "one", SCENES, "--report", "--json")
    assert again.stderr.splitlines()[-1] == "wrote one/report.html"
    found = evaluate_phrases(folder / "one", SCENES, device="cpu")
    assert json.loads(again.stdout) == found.to_json()
    page = (folder / "one" / "report.html").read_text()
    assert "scenes, split test" in page
    assert f"<dd>{len(found)}</dd>" in page


def test_several_seeds_are_summarised_by_phrases(folder, seeds):
    result, runs = seeds
    summary = json.loads((folder / "seeds" / "summary.json").read_text())
    sums = [run["phrase_sum"] for run in summary["runs"].values()]
    assert list(summary["mean"]) == ["phrase_r1", "phrase_r5", "phrase_r10", "phrase_sum"]
    assert summary["mean"]["phrase_sum"] == pytest.approx(sum(sums) / 2)
    assert f"median run by phrase_sum: seeds/{summary['median_run']}" in " ".join(result.stdout.split())
    for run in runs:
        assert 'id="phrases"' in (folder / run / "report.html").read_text()
        best = json.loads((folder / run / "best" / "metrics.json").read_text())
        assert summary["runs"][run.removeprefix("seeds/")] == best["val"]
    train("train", "--seeds", "2", "--into", "seeds", "--report-on", "test")
    test = json.loads((folder / "seeds" / "summary.json").read_text())
    assert test["runs"]["seed-1"] == evaluate_phrases(runs[1], SCENES, device="cpu").metrics


def test_a_sweep_chooses_by_phrases(folder):
    result = train("sweep", "--over", "stage.1.objective.margin=0.1,0.2", "--into", "sweep")
    best = json.loads((folder / "sweep" / "summary.json").read_text())["best"]
    assert f"best by phrase_sum on val: margin = {best['values']['stage.1.objective.margin']}" in result.stdout
    assert best["val_phrase_sum"] == best["mean"]["phrase_sum"]
    assert "| PHRASE R@1 |" in (folder / "sweep" / "summary.md").read_text()


def test_runs_are_compared_by_the_same_phrases(folder, seeds):
    _, runs = seeds
    result = invoke("compare", *runs, "--data", SCENES, "--into", "c.md", "--into", "c.json", "--json")
    told = json.loads(result.stdout)
    assert told == json.loads((folder / "c.json").read_text())
    found = [evaluate_phrases(run, SCENES, device="cpu") for run in runs]
    assert [run["metrics"] for run in told["runs"]] == [each.metrics for each in found]
    assert told["runs"][1]["difference"] == paired_phrase_difference(*found).to_json()
    assert "| seed-1 − seed-0 |" in (folder / "c.md").read_text()
    assert result.stderr.splitlines() == ["wrote c.md", "wrote c.json"]
    table = invoke("compare", *runs, "--data", SCENES).stdout
    assert f"{len(found[0])} phrases in 4 images" in table
    assert "…" not in table
    assert not (folder / "compare.html").exists()


def test_what_cannot_be_compared_is_told_in_a_line(seeds, folder):
    _, runs = seeds
    assert "remove --folds" in refused("compare", *runs, "--folds", "2")
    assert "ends in .md or .json, not c.html" in refused("compare", *runs, "--into", "c.html")
    (folder / "other").mkdir()
    line = refused("compare", "other", runs[0])
    assert line == "other: was not trained on phrases, but seeds/seed-0 was; compare runs of the same task"


def test_a_run_searches_mines_and_encodes_as_any_other(folder, seeds):
    run = seeds[1][0]
    assert invoke("index", run, SCENES, "--into", "scenes.diptych").exit_code == 0
    found = json.loads(invoke("search", "scenes.diptych", "a red circle", "-k", "3", "--json").stdout)["hits"]
    assert len(found) == 3
    assert found[0]["score"] >= found[2]["score"]
    assert invoke("search", "scenes.diptych", "--like", found[0]["id"], "--to", "texts").exit_code == 0
    assert invoke("mine", run, SCENES, "--into", "lists.safetensors").exit_code == 0
    assert invoke("encode", run, SCENES, "--into", "test.safetensors").exit_code == 0
    measured = json.loads(CliRunner().invoke(app, ["evaluate", "test.safetensors", "--json"]).stdout)
    assert (measured["images"], measured["texts"]) == (4, 8)
