"""`diptych explain` on runs whose weights are random."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from rich.text import Text
from typer.testing import CliRunner

from diptych.cli.explain import _coloured
from diptych.cli.main import app
from diptych.errors import DataError, ImageError, RunError
from diptych.model import Model
from diptych.models.explain.word_importance import Explanation, WordImportance
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.tokenisers.treebank import tokenise
from diptych.text.vocabulary import Vocabulary

COMMAND = ("explain", "--device", "cpu")

SCENES = "scenes:train=2,val=2,test=4,texts=2"
VOCABULARY = Vocabulary.from_texts(["two red circles on the right", "a [b]small[/b] star"], 1)


def saved(folder, image):
    torch.manual_seed(0)
    settings = VSESettings(joint=8, text=GRUSettings(word=4, hidden=8), image=image, words=len(VOCABULARY))
    (folder / "best").mkdir(parents=True)
    VOCABULARY.save(folder)
    save_matcher(folder / "best" / "weights.safetensors", settings.build().eval(), VOCABULARY, {})
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("runs") / "pixels", CNNSettings(pixels=32, width=2))


@pytest.fixture
def photo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).integers(0, 255, (80, 200, 3), np.uint8)
    Image.fromarray(values).save(tmp_path / "holiday.png")
    return tmp_path / "holiday.png"


def test_score_words_and_table_are_printed(run, photo, invoke):
    result = invoke(run, photo, "Two red zebra circles")
    assert result.exit_code == 0, result.output
    found = Model.load(run, "cpu").explain(photo, "Two red zebra circles")
    lines = result.stdout.splitlines()
    assert lines[0] == f"score {found.score:.3f}"
    assert lines[1].split() == ["two", "red", "zebra", "circles"]
    rows = [line.split() for line in lines[3:]]
    assert rows == [[str(n), each.word, f"{each.importance:+.4f}"] for n, each in enumerate(found.by_importance, 1)]
    assert "not known to the model: zebra" in result.stderr


def test_json_and_the_first_words_only(run, photo, invoke):
    told = json.loads(invoke(run, photo, "two red zebra circles", "--top", "2", "--json").stdout)
    assert (told["image"], told["sentence"]) == (str(photo), "two red zebra circles")
    assert [word["word"] for word in told["words"]] == ["two", "red", "zebra", "circles"]
    assert told["words"][2]["importance"] is None
    assert len(told["by_importance"]) == 2
    assert told["by_importance"][0]["importance"] >= told["by_importance"][1]["importance"]
    assert len(invoke(run, photo, "two red zebra circles", "--top", "1").stdout.splitlines()) == 4


def test_an_image_of_the_corpus_by_its_id(run, photo, invoke):
    told = json.loads(invoke(run, "test-00000-0", "red circles", "--data", SCENES, "--json").stdout)
    assert told["image"] == "test-00000-0"
    file = json.loads(invoke(run, photo, "red circles", "--data", SCENES, "--json").stdout)
    assert file["score"] != told["score"]


def test_a_word_is_never_markup(run, photo, invoke):
    lines = invoke(run, photo, "a [b]small[/b] star").stdout.splitlines()
    assert lines[1].split() == tokenise("a [b]small[/b] star")
    assert {"[", "]", "b"} <= {line.split()[1] for line in lines[3:]}


def test_a_run_on_stored_features_needs_an_image_id(photo, tmp_path, invoke, refused):
    features = saved(tmp_path / "stored", FeatureSettings(shape=(4,)))
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "test_ims.npy", np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
    (data / "test_caps.txt").write_text("red circles\na small star\ntwo circles\n")
    (data / "test_ids.txt").write_text("x\ny\nz\n")
    reason = refused(features, photo, "red circles", error=DataError)
    assert reason.startswith(f"{photo}: the run reads stored features; name the corpus")
    assert "name the corpus with --data" in refused(features, photo, "red circles", "--data", data)
    told = [
        json.loads(invoke(features, name, "red circles", "--data", data, "--json").stdout)
        for name in ("test/x", "test/y")
    ]
    assert told[0]["score"] != told[1]["score"]


def test_errors_are_one_line(run, photo, tmp_path, refused):
    assert "the sentence is empty" in refused(run, photo, " ")
    assert refused(run, photo, "zebra").startswith("'zebra': the run knows none of its words")
    refused(run, tmp_path / "none.png", "red circles", error=ImageError)
    assert "neither the id of an image of scenes nor a file" in str(
        refused(run, "test-99", "red circles", "--data", SCENES)
    )
    refused(tmp_path / "nothing", photo, "red circles", error=RunError)


def test_colours_show_importance_relative_to_the_largest():
    importances = (0.1, 0.04, 0.01, None, -0.02, -0.08)
    words = tuple(WordImportance(place, f"w{place}", each) for place, each in enumerate(importances))
    line = _coloured(Explanation("-", 0.5, words))
    assert isinstance(line, Text)
    assert [span.style for span in line.spans] == ["bold green", "green", "dim italic", "red", "bold red"]
    assert not _coloured(Explanation("-", 0.5, (WordImportance(0, "same", 0.0),))).spans


def test_help_has_examples():
    assert 'diptych explain runs/first holiday.jpg "two dogs on a beach"' in " ".join(
        CliRunner().invoke(app, ["explain", "--help"]).output.split()
    )
