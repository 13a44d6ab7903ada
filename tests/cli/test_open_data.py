"""--val and --test, and what later commands know of them."""

import json
import re
import shutil

import pytest

from diptych.cli.open_data import open_data, split_rule
from diptych.data.formats.scenes import make_scenes
from diptych.data.open import open_corpus
from diptych.data.splitting import SplitRule
from diptych.errors import DataError, RunError
from diptych.evaluation.runs import evaluate
from diptych.model import Model

SHARES = ("--val", "0.2", "--test", "0.25")
SIZES = "train 11, val 4, test 5 images (val 0.2, test 0.25, seed 0)"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of twenty pictures without splits."""
    folder = tmp_path_factory.mktemp("pictures")
    corpus = make_scenes(train=20, val=0, test=0, texts=2)
    lines = ["image,text"]
    for number, picture in enumerate(corpus.pictures):
        picture.load().resize((32, 32)).save(folder / f"{number}.png")
        lines += [f'{number}.png,"{text}"' for text in corpus.texts[2 * number : 2 * number + 2]]
    (folder / "photos.csv").write_text("\n".join(lines) + "\n")
    return folder / "photos.csv"


@pytest.fixture(scope="module")
def trained(table, invoke, tmp_path_factory, tiny_settings):
    run = tmp_path_factory.mktemp("runs") / "run"
    options = ("--into", run, "--device", "cpu", "--workers", "0", *tiny_settings)
    result = invoke("train", "scenes", table, *SHARES, *options)
    assert result.exit_code == 0, result.output
    return run, result


def words(text):
    return " ".join(text.split())


def test_the_rule_of_the_options():
    assert split_rule(None, None) is None
    assert split_rule(0.1, None) == SplitRule(0.1, 0.0)
    assert split_rule(None, 0.2) == SplitRule(0.0, 0.2)
    with pytest.raises(DataError, match="leave nothing to train on"):
        split_rule(0.5, 0.5)


def test_data_is_opened_and_the_user_is_told(table, capsys):
    assert open_data(str(table)).split_origin == "default"
    assert capsys.readouterr().err == ""
    corpus = open_data(str(table), SplitRule(0.2, 0.25))
    assert corpus.digest() == open_corpus(table).with_splits(val=0.2, test=0.25).digest()
    assert SIZES in words(capsys.readouterr().err)


def test_training_says_who_split_the_data_and_records_it(trained, table):
    run, result = trained
    assert f"photos has no splits of its own: Diptych split it into {SIZES}" in words(result.stderr)
    assert "warning: val has only 4 images" in words(result.stderr)
    assert json.loads((run / "data.json").read_text())["splits"] == {"val": 0.2, "test": 0.25, "seed": 0}
    expected = open_corpus(table).with_splits(val=0.2, test=0.25)
    assert json.loads((run / "data.json").read_text())["digest"] == expected.digest()


def test_evaluation_uses_the_splits_of_the_run(trained, table, invoke, refused):
    run, _ = trained
    result = invoke("evaluate", run, table, "--device", "cpu", "--json", "--report")
    assert result.exit_code == 0, result.output
    assert SIZES in words(result.stderr)
    measured = json.loads(result.stdout)
    same = invoke("evaluate", run, table, *SHARES, "--device", "cpu", "--json")
    assert json.loads(same.stdout) == measured
    # Python answers the same, by address or with the corpus itself.
    for one, data in (
        (run, table),
        (Model.load(run, "cpu"), str(table)),
        (run, open_corpus(table).with_splits(val=0.2, test=0.25)),
    ):
        found = evaluate(one, data, device="cpu")
        assert (found.images, found.metrics.to_json()["rsum"]) == (5, measured["metrics"]["rsum"])
    message = refused("evaluate", run, table, "--val", "0.1", error=RunError)
    assert "was trained with the splits val 0.2, test 0.25, seed 0, not val 0.1, test 0, seed 0" in message


def test_other_commands_use_the_splits_of_the_run(trained, table, invoke, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "run")
    other = shutil.copytree(trained[0], tmp_path / "other")
    result = invoke("encode", run, table, "--into", tmp_path / "x.safetensors", "--device", "cpu")
    assert "5 images, 10 texts" in words(result.stdout)
    result = invoke("mine", run, table, "--top-texts", "2", "--top-images", "2", "--device", "cpu")
    assert "lists of 11 images and 22 texts" in words(result.stdout)
    assert "other data" not in result.stderr
    for data in ((), ("--data", table)):
        result = invoke("compare", run, other, *data, "--into", tmp_path / "c.json", "--device", "cpu", "--json")
        assert result.exit_code == 0, result.output
        assert re.search(r'"images": 5\b', result.stdout)


def test_resuming_keeps_the_splits_of_the_run(trained, table, invoke, refused, tmp_path, tiny_settings):
    run = shutil.copytree(trained[0], tmp_path / "run")
    again = ("train", "scenes", table, "--into", run, "--device", "cpu", "--resume", *tiny_settings)
    result = invoke(*again)
    assert result.exit_code == 0, result.output
    assert SIZES in words(result.stderr)
    assert "was trained with the splits val 0.2, test 0.25" in refused(*again, "--val", "0.3")


def test_several_runs_are_trained_on_the_same_splits(table, invoke, refused, tmp_path, tiny_settings):
    options = ("--device", "cpu", "--workers", "0", *SHARES, *tiny_settings)
    result = invoke("train", "scenes", table, "--seeds", "0,1", "--into", tmp_path / "seeds", *options)
    assert result.exit_code == 0, result.output
    over = ("--over", "stage.2.epochs=1,2", "--into", tmp_path / "sweep")
    result = invoke("sweep", "scenes", table, *over, *options)
    assert result.exit_code == 0, result.output
    files = [*tmp_path.glob("seeds/*/data.json"), *tmp_path.glob("sweep/*/data.json")]
    assert len(files) == 4
    assert len({file.read_text() for file in files}) == 1
    assert '"val": 0.2' in files[0].read_text()
    # Finished runs are measured on their own splits, whether or not the options are given again.
    again = (
        "train",
        "scenes",
        table,
        "--seeds",
        "0,1",
        "--into",
        tmp_path / "seeds",
        "--device",
        "cpu",
        *tiny_settings,
    )
    result = invoke(*again, "--report-on", "test")
    assert result.exit_code == 0, result.output
    assert SIZES in words(result.stderr)
    assert "was trained with the splits val 0.2, test 0.25" in refused(*again, "--val", "0.3")


def test_data_check_shows_the_splits(table, invoke):
    result = invoke("data", "check", table, *SHARES, "--json")
    sizes = {name: part["images"] for name, part in json.loads(result.stdout)["splits"].items()}
    assert sizes == {"train": 11, "val": 4, "test": 5}
    assert SIZES in words(result.stderr)
    default = invoke("data", "check", table)
    assert "(the default; choose others with --val 0.15 --test 0.15)" in words(default.stderr)


def test_refusals(table, refused, tmp_path):
    train = ("train", "scenes", table, "--into", tmp_path / "x")
    assert "leave nothing to train on" in refused(*train, "--val", "0.5", "--test", "0.5")
    assert "val = 0.01 of 20 groups leaves val empty" in refused(*train, "--val", "0.01")
    assert "split it with --val 0.15 --test 0.15" in refused(*train, "--test", "0.5")
    assert not (tmp_path / "x").exists()
    message = refused("train", "scenes", "scenes:train=4,val=2,test=2", "--val", "0.1", "--into", tmp_path / "x")
    assert "scenes: has splits of its own (images: train 4, val 2, test 2)" in message
    assert "has splits of its own" in refused("data", "check", "scenes:train=4,val=2,test=2", "--test", "0.1")
