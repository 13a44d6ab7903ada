from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.data.open import open_corpus
from diptych.data.origin import Origin, open_origin
from diptych.errors import RunError


def table(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"image,text\na.jpg,{text}\n")
    (path.parent / "a.jpg").touch()
    return path


def run_on(folder: Path, data: Path | str) -> Path:
    """A run folder that knows what it was trained on."""
    folder.mkdir()
    corpus = open_corpus(data)
    Origin(corpus.address, corpus.digest()).save(folder)
    return folder


def refused(*runs: Path) -> str:
    with pytest.raises(RunError) as caught:
        open_origin(runs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("address", [None, "scenes", "/somewhere/Bücher", "/no/utf-8/\udcff"], ids=ascii)
def test_what_is_saved_is_read(tmp_path, address):
    Origin(address, "abc").save(tmp_path)
    assert Origin.read(tmp_path) == Origin(address, "abc")
    assert list(tmp_path.iterdir()) == [tmp_path / "data.json"]


def test_the_data_of_the_runs_is_opened_from_anywhere(tmp_path, monkeypatch):
    table(tmp_path / "here/t.csv", "one")
    monkeypatch.chdir(tmp_path / "here")
    runs = [run_on(tmp_path / name, "t.csv") for name in ("a", "b")]
    monkeypatch.chdir(tmp_path)
    corpus, notes = open_origin(runs)
    assert (list(corpus.texts), notes) == (["one"], [])


def test_the_same_data_in_two_places_is_one(tmp_path):
    first, second = table(tmp_path / "x/t.csv", "one"), table(tmp_path / "y/t.csv", "one")
    corpus, notes = open_origin([run_on(tmp_path / "a", first), run_on(tmp_path / "b", second)])
    assert (corpus.address, notes) == (str(first), [])


def test_runs_of_different_data_need_to_be_told_on_which(tmp_path):
    first, second = table(tmp_path / "x/t.csv", "one"), table(tmp_path / "y/t.csv", "two")
    a, b, c = run_on(tmp_path / "a", first), run_on(tmp_path / "b", first), run_on(tmp_path / "c", second)
    message = refused(a, b, c)
    assert f"{a} was trained on {first}, {c} on {second};" in message
    assert "--data" in message


def test_data_that_changed_since_is_worth_a_note(tmp_path):
    data = table(tmp_path / "t.csv", "one")
    a = run_on(tmp_path / "a", data)
    table(data, "two")
    b = run_on(tmp_path / "b", data)
    corpus, notes = open_origin([a, b])
    assert list(corpus.texts) == ["two"]
    assert notes == [f"{data}: has changed since {a} was trained on it"]


def test_data_that_is_gone(tmp_path):
    data = table(tmp_path / "data/t.csv", "one")
    run = run_on(tmp_path / "a", data)
    shutil.rmtree(data.parent)
    message = refused(run)
    assert f"{run}: its training data cannot be opened ({data}: no such file or folder)" in message
    assert "--data" in message


def test_runs_that_do_not_say(tmp_path):
    assert "none: no such run" in refused(tmp_path / "none")
    bare = tmp_path / "bare"
    bare.mkdir()
    assert "bare: no such run" in refused(bare)
    (bare / "recipe.toml").touch()
    assert "bare: does not say what it was trained on" in refused(bare)
    Origin(make_scenes(train=2, val=2, test=2, texts=1).address, "abc").save(bare)
    assert "bare: was trained on a corpus made in Python" in refused(bare)
    whole = json.loads((bare / "data.json").read_text())
    for broken in ([], {}, {**whole, "version": 2}, {**whole, "format": "x"}, {**whole, "digest": 1}):
        (bare / "data.json").write_text(json.dumps(broken))
        message = refused(bare)
        assert "data.json: not a file that training has written" in message
        assert "--data" in message
    (bare / "data.json").write_text("{")
    assert "data.json:1: not valid JSON" in refused(bare)


def test_the_address_does_not_identify_a_corpus():
    corpus = make_scenes(train=2, val=2, test=2, texts=1)
    assert replace(corpus, address="elsewhere").digest() == corpus.digest()
