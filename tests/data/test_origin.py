from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.data.open import open_corpus
from diptych.data.origin import Origin, check_start, open_origin, split_as_trained
from diptych.data.splitting import SplitRule
from diptych.errors import DataError, RunError


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


def many(path: Path, count: int = 20, first: int = 0) -> Path:
    """A table without splits, and its images."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [f"{number}.jpg" for number in range(first, first + count)]
    path.write_text("image,text\n" + "".join(f"{name},text of {name}\n" for name in names))
    for name in names:
        (path.parent / name).touch()
    return path


def run_with_rule(folder: Path, data: Path, **shares: float) -> Path:
    folder.mkdir()
    corpus = open_corpus(data).with_splits(**shares)
    Origin.of(corpus, corpus.digest()).save(folder)
    return folder


def test_the_rule_that_split_the_data_is_recorded(tmp_path):
    run = run_with_rule(tmp_path / "a", many(tmp_path / "t.csv"), val=0.1, test=0.2, seed=3)
    assert Origin.read(run).rule == SplitRule(0.1, 0.2, 3)
    assert json.loads((run / "data.json").read_text())["splits"] == {"val": 0.1, "test": 0.2, "seed": 3}
    plain = open_corpus(tmp_path / "t.csv")
    assert Origin.of(plain, "abc") == Origin(plain.address, "abc", None)
    corpus, notes = open_origin([run])
    assert corpus.digest() == plain.with_splits(val=0.1, test=0.2, seed=3).digest()
    assert notes == []
    whole = json.loads((run / "data.json").read_text())
    for broken in (7, {"val": 2}, {"vla": 0.1}):
        (run / "data.json").write_text(json.dumps({**whole, "splits": broken}))
        assert "data.json: not a file that training has written" in refused(run)


def test_data_is_split_as_it_was_for_the_run(tmp_path):
    data = many(tmp_path / "t.csv")
    run, other = (run_with_rule(tmp_path / name, data, val=0.1, test=0.2) for name in "ab")
    split, notes = split_as_trained(open_corpus(data), [run, other, tmp_path / "starter"])
    assert split.split_sizes() == {"train": 14, "val": 2, "test": 4}
    assert notes == [
        "t has no splits of its own: Diptych split it into train 14, val 2, test 4 images (val 0.1, test 0.2, seed 0)"
    ]
    assert split_as_trained(open_corpus(data), [run], SplitRule(0.1, 0.2))[0].digest() == split.digest()
    # Other data is split by the same rule.
    elsewhere, notes = split_as_trained(open_corpus(many(tmp_path / "x/t.csv", 30)), [run])
    assert (elsewhere.split_sizes(), len(notes)) == ({"train": 21, "val": 3, "test": 6}, 1)
    # Nobody asked for anything: the default of the format stays.
    plain = open_corpus(data)
    assert split_as_trained(plain, [tmp_path / "starter", run_on(tmp_path / "c", data)]) == (plain, [])


def test_data_with_splits_keeps_them(tmp_path):
    run = run_with_rule(tmp_path / "a", many(tmp_path / "t.csv"), val=0.1)
    scenes = make_scenes(train=2, val=2, test=2, texts=1)
    assert split_as_trained(scenes, [run]) == (scenes, [])
    with pytest.raises(DataError, match="has splits of its own"):
        split_as_trained(scenes, [], SplitRule(0.1))


def test_a_run_with_other_splits_is_refused(tmp_path):
    data = many(tmp_path / "t.csv")
    a, b = run_with_rule(tmp_path / "a", data, val=0.1), run_with_rule(tmp_path / "b", data, val=0.2)
    for runs, rule in (([a], SplitRule(0.2)), ([b, a], None)):
        with pytest.raises(RunError) as caught:
            split_as_trained(open_corpus(data), runs, rule)
        assert f"{a}: was trained with the splits val 0.1, test 0, seed 0, not val 0.2, test 0" in str(caught.value)
    assert f"{b}: was trained with the splits val 0.2" in refused(a, b)
    default = run_on(tmp_path / "default", data)
    for runs, rule in (([default], SplitRule(0.2)), ([b, default], None)):
        with pytest.raises(RunError, match=r"default: was trained with the splits of the data, not val 0\.2, test 0"):
            split_as_trained(open_corpus(data), runs, rule)
    elsewhere = open_corpus(many(tmp_path / "x/t.csv"))
    assert split_as_trained(elsewhere, [default], SplitRule(0.2))[0].split_sizes() == {"train": 16, "val": 4}
    assert "of the data, not val 0.1" in refused(a, run_on(tmp_path / "c", data))


def test_a_run_to_start_from_must_have_had_the_same_splits_of_the_same_data(tmp_path):
    table = many(tmp_path / "t.csv")
    run, other = run_with_rule(tmp_path / "a", table, val=0.1, test=0.2), many(tmp_path / "other.csv")
    plain = open_corpus(table)
    check_start(run, plain.with_splits(val=0.1, test=0.2))
    check_start(run, open_corpus(other))  # other data: nothing that is in its val or test was trained on
    check_start(tmp_path, plain)  # does not say what it was trained on
    for corpus, splits in ((plain, "those of the data"), (plain.with_splits(val=0.3, test=0.2), "val 0.3, test 0.2")):
        with pytest.raises(RunError, match=rf"a: was trained with the splits val 0\.1, test 0\.2.*, not {splits}"):
            check_start(run, corpus)


def test_data_that_grew_since_may_have_moved_images_into_test(tmp_path):
    data = many(tmp_path / "t.csv")
    run = run_with_rule(tmp_path / "a", data, val=0.1, test=0.2)
    many(data, 30)
    _, notes = split_as_trained(open_corpus(data), [run])
    assert notes[1].startswith(f"warning: t has changed since {run} was trained on it")
    assert open_origin([run])[1] == [f"{data}: has changed since {run} was trained on it"]
    data.write_text(data.read_text().replace("\n", ",train\n").replace("text,train", "text,split"))
    corpus, notes = open_origin([run])  # it has splits of its own by now
    assert (corpus.split_sizes(), len(notes)) == ({"train": 30}, 1)
