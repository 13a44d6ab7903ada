from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from diptych.data.corpus import Corpus
from diptych.data.origin import Origin
from diptych.errors import DataError, ImageError, RunError, ScoreError
from diptych.evaluation.metrics.paired_difference import paired_difference
from diptych.evaluation.runs import evaluate
from diptych.report.comparison.compare import compare
from diptych.report.comparison.page import comparison_page, render_comparison_page
from support.made_runs import random_run


class Broken:
    def load(self):
        raise ImageError("broken.jpg: damaged")


def with_pictures(corpus: Corpus, pictures) -> Corpus:
    return Corpus(**{**vars(corpus), "pictures": pictures})


def test_each_run_has_the_same_result_as_alone(three, compared_runs, compared_corpus):
    assert [run.path for run in three.runs] == compared_runs
    for run in three.runs:
        assert run.result.to_json() == evaluate(run.path, compared_corpus, device="cpu").to_json()
        assert run.name == run.path.name
    assert three.title == "scenes, split test: 14 images, 28 texts"


def test_every_other_run_has_a_difference_from_the_first(three):
    assert three.baseline is three.runs[0]
    assert three.baseline.difference is None
    for run in three.runs[1:]:
        assert run.difference == paired_difference(three.baseline.result.folds, run.result.folds)


def test_folds_have_the_same_result_as_alone(compared_runs, compared_corpus):
    found = compare(compared_runs[:2], compared_corpus, folds=3, device="cpu")
    alone = [evaluate(run, compared_corpus, folds=3, device="cpu") for run in compared_runs[:2]]
    assert [run.result.to_json() for run in found.runs] == [result.to_json() for result in alone]
    assert found.runs[1].difference == paired_difference(*(result.folds for result in alone))
    assert found.title == "scenes, split test, 3 folds of 4 to 5 images: 14 images, 28 texts"


def test_an_image_that_one_run_cannot_read_is_skipped_for_all(compared_runs, compared_corpus):
    name = compared_corpus.split("test").image_ids[3]
    asked = []

    def encode(run, trained, part):
        if run == "plain":
            pictures = [
                Broken() if image == name else p for image, p in zip(part.image_ids, part.pictures, strict=True)
            ]
            part = with_pictures(part, pictures)
        asked.append((run, len(part.image_ids)))
        return trained.encode_corpus(part, 0)

    found = compare(compared_runs, compared_corpus, device="cpu", encode=encode)
    # the run that could not read it has encoded the rest already
    assert asked == [("plain", 14), ("<b>other", 14), ("third|run", 14), ("<b>other", 13), ("third|run", 13)]
    assert name not in found.corpus.image_ids
    assert found.skipped == {name: "broken.jpg: damaged"}
    for run in found.runs:
        assert len(run.result.folds[0].images) == 13
        assert list(run.encoded.corpus.image_ids) == list(found.corpus.image_ids)
        assert list(run.encoded.corpus.texts) == list(found.corpus.texts)


def test_runs_without_a_common_readable_image_are_refused(compared_runs, compared_corpus):
    def encode(run, trained, part):
        pictures = [Broken() if (i % 2 == 0) == (run == "plain") else p for i, p in enumerate(part.pictures)]
        return trained.encode_corpus(with_pictures(part, pictures), 0)

    with pytest.raises(DataError, match="no image can be read by all runs"):
        compare(compared_runs[:2], compared_corpus, device="cpu", encode=encode)


def test_runs_of_the_same_name_are_named_by_their_paths(compared_runs, compared_corpus, tmp_path, monkeypatch):
    twin = tmp_path / "plain"
    shutil.copytree(compared_runs[0], twin)
    found = compare([*compared_runs[:2], twin], compared_corpus, device="cpu")
    assert [run.name for run in found.runs] == [str(compared_runs[0]), "<b>other", str(twin)]
    assert not any(each.is_significant for each in found.runs[2].difference.differences.values())
    monkeypatch.chdir(twin)
    assert compare([Path(), compared_runs[1]], compared_corpus, device="cpu").baseline.name == "plain"


def test_the_corpus_defaults_to_that_of_the_training(compared_runs, tmp_path):
    address = "scenes:train=2,val=2,test=4,texts=2"
    runs = [tmp_path / "a", tmp_path / "b"]
    for run, source in zip(runs, compared_runs[:2], strict=True):
        shutil.copytree(source, run)
        Origin(address, "of other scenes").save(run)
    found = compare(runs, device="cpu")
    assert found.corpus.address == address
    assert len(found.corpus.image_ids) == 4
    assert found.notes == [f"{address}: has changed since {run} was trained on it" for run in runs]


def test_refusals(compared_runs, compared_corpus, tmp_path):
    first, second = compared_runs[:2]
    with pytest.raises(RunError, match="plain: only one run; name at least two runs"):
        compare([first], compared_corpus)
    with pytest.raises(RunError, match="no runs; name at least two runs"):
        compare([], compared_corpus)
    with pytest.raises(RunError, match="the run was named twice"):
        compare([first, second, first / ".." / "plain"], compared_corpus)
    with pytest.raises(RunError, match="no such run"):
        compare([first, tmp_path / "none"], compared_corpus)
    shutil.copytree(first, tmp_path / "empty")
    (tmp_path / "empty" / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"empty.metrics\.jsonl: no finished epoch"):
        compare([first, tmp_path / "empty"], compared_corpus)
    with pytest.raises(DataError, match="split restval has no images"):
        compare([first, second], compared_corpus, "restval")
    with pytest.raises(ScoreError, match="15 folds of 14 groups"):
        compare([first, second], compared_corpus, folds=15, device="cpu")
    splits, pictures = compared_corpus.image_splits, compared_corpus.pictures
    broken = [Broken() if split == "test" else p for split, p in zip(splits, pictures, strict=True)]
    with pytest.raises(DataError, match="no image of test could be read"):
        compare([first, second], with_pictures(compared_corpus, broken), device="cpu")


def test_a_run_that_was_not_trained_can_be_compared(compared_runs, compared_corpus, tmp_path):
    made = random_run(tmp_path / "made", compared_corpus.texts)
    found = compare([compared_runs[0], made], compared_corpus, device="cpu")
    assert found.runs[0].epochs
    assert found.runs[1].epochs == []
    assert found.runs[1].title == "made"
    assert "epochs of made" in render_comparison_page(comparison_page(found))
