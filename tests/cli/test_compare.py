"""`diptych compare` as people use it."""

import shutil

import pytest
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.data.open import open_corpus
from diptych.errors import DiptychError
from diptych.training.recipe import load_recipe
from diptych.training.train import train

SCENES = "scenes:train=16,val=6,test=6,texts=2"
TINY = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2", "model.image.pixels=32"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, seed in (("vse[0]", 0), ("vsepp", 1)):
        recipe = load_recipe("scenes", [*TINY, "stage.2.epochs=1", f"seed={seed}"])
        train(recipe, open_corpus(SCENES), folder / name, device="cpu", workers=0)
    return [str(folder / name) for name in ("vse[0]", "vsepp")]


def invoke(*words):
    return CliRunner().invoke(app, ["compare", *words, "--device", "cpu"])


def refused(*words):
    """The one line that the command refuses with."""
    result = invoke(*words)
    assert isinstance(result.exception, DiptychError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_it_prints_a_table_and_writes_a_page(runs, tmp_path):
    page = tmp_path / "new" / "compare.html"
    found = invoke(*runs, SCENES, "--into", str(page), "--seed", "7")
    assert found.exit_code == 0, found.output
    assert "vse[0]" in found.stdout
    assert "difference" in found.stdout
    assert "6 images, 12 texts" in found.stdout
    assert f"wrote {page}" in found.stderr
    html = page.read_text()
    assert '<h1 dir="auto">vse[0] and vsepp</h1>' in html
    assert "Drawn at random with seed 7" in html
    again = invoke(*runs, SCENES, "--into", str(tmp_path / "again.html"), "--seed", "7", "--workers", "0")
    assert again.stdout == found.stdout
    assert (tmp_path / "again.html").read_text() == html


def test_it_reads_another_split(runs, tmp_path):
    found = invoke(*runs, SCENES, "--split", "val", "--into", str(tmp_path / "val.html"))
    assert "scenes, split val" in found.stdout


def test_refusals_are_one_line(runs, tmp_path):
    page = ("--into", str(tmp_path / "x.html"))
    assert "the same run twice" in refused(runs[0], runs[0], SCENES, *page)
    assert "no such run" in refused(runs[0], str(tmp_path / "none"), SCENES, *page)
    assert "no split 'tset'; did you mean 'test'?" in refused(*runs, SCENES, "--split", "tset", *page)
    assert "split restval has no images" in refused(*runs, SCENES, "--split", "restval", *page)
    assert "is a folder; name a file" in refused(*runs, SCENES, "--into", str(tmp_path))
    shutil.copytree(runs[1], tmp_path / "fresh")
    (tmp_path / "fresh" / "metrics.jsonl").write_text("")
    assert "fresh/metrics.jsonl: no finished epoch" in refused(runs[0], str(tmp_path / "fresh"), SCENES, *page)
    assert not (tmp_path / "x.html").exists()
