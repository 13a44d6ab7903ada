"""A run beside what it started from, the starter and the paper; here another small run stands for the starter."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
import tomli_w

from diptych.data.formats.scenes import make_scenes
from diptych.data.images import DecodedPicture
from diptych.evaluation.metrics.paired_difference import paired_difference
from diptych.evaluation.runs import evaluate_encoded
from diptych.model import Model
from diptych.report.baselines import Baseline, compare_with_baselines, open_baselines, published_figures
from diptych.training.recipe_loader import load_recipe
from support.corpora import with_features


def as_photos(drawn):
    """The corpus with its scenes as pictures that are not known to be drawn."""
    return replace(drawn, pictures=[DecodedPicture(picture.load()) for picture in drawn.pictures])


@pytest.fixture(scope="module")
def photos(corpus):
    return as_photos(corpus.split("test"))


@pytest.fixture(scope="module")
def starter(compared_runs):
    return Baseline(Model.load(compared_runs[0], "cpu"), ("starter",))


@pytest.fixture(scope="module")
def start(compared_runs):
    return Baseline(Model.load(compared_runs[1], "cpu"), ("start",))


def measured(run, part, **options):
    encoded = Model.load(run, "cpu").encode_corpus(part)
    return encoded, evaluate_encoded([encoded], **options)


@pytest.mark.parametrize("options", [{}, {"folds": 2}, {"gallery": 4}], ids=["one gallery", "folds", "gallery"])
def test_all_are_measured_alike_on_the_same_images(options, run, start, starter, photos):
    encoded, result = measured(run, photos, **options)
    comparison = compare_with_baselines(run, encoded, result, [start, starter], gallery=options.get("gallery"))
    content = comparison.to_json()
    assert list(content) == ["start", "starter"]
    for baseline, found in zip((start, starter), comparison.baselines, strict=True):
        _, expected = measured(baseline.model.address, photos, **options)
        assert found.result.metrics == expected.metrics
        assert found.result.protocol == result.protocol
        assert found.difference == paired_difference(expected.folds, result.folds)
        told = content[baseline.roles[0]]
        assert told["name"] == baseline.name
        assert told["metrics"]["rsum"] == expected.metrics.rsum
        difference = told["difference"]["differences"]["rsum"]["value"]
        assert difference == pytest.approx(result.metrics.rsum - expected.metrics.rsum)


def test_what_is_computed_is_shown(run, start, starter, photos):
    titles = []

    @contextmanager
    def progress(title):
        titles.append(title)
        yield lambda done, total: None

    compare_with_baselines(run, *measured(run, photos), [start, starter], progress=progress)
    assert titles == [
        "encoding with <b>other, to compare (--no-starter skips it)",
        "encoding with plain, to compare (--no-starter skips it)",
    ]


def test_nothing_is_compared_where_the_starter_says_nothing(run, start, starter, corpus, photos, tmp_path):
    encoded, result = measured(run, photos)
    itself = Baseline(Model.load(run, "cpu"), ("starter",))
    assert compare_with_baselines(run, encoded, result, []) is None
    assert compare_with_baselines(run, encoded, result, [itself]) is None
    copy = shutil.copytree(run, tmp_path / "copy")
    assert compare_with_baselines(copy, encoded, result, [itself]) is None
    persons = as_photos(make_scenes(train=0, val=0, test=4, texts=2, images=2))
    for name, compared in {
        "a file of encodings": (replace(encoded, corpus=None), result),
        "drawn scenes": measured(run, corpus.split("test")),
        "person search": measured(run, persons),
        "features": (replace(encoded, corpus=with_features(corpus.split("test"))), result),
    }.items():
        assert compare_with_baselines(run, *compared, [starter]) is None, name


@pytest.mark.parametrize("kind", ["drawn scenes", "person search"])
def test_what_a_run_started_from_is_measured_on_any_data(kind, run, start, starter, corpus):
    part = corpus.split("test") if kind == "drawn scenes" else as_photos(make_scenes(0, 0, 4, texts=2, images=2))
    comparison = compare_with_baselines(run, *measured(run, part), [start, starter])
    assert [baseline.roles for baseline in comparison.baselines] == [("start",)]
    assert comparison.baselines[0].result.metrics.rsum == measured(start.model.address, part)[1].metrics.rsum


def with_starts(run, folder, *starts):
    """A copy of a run whose stages have started from these."""
    shutil.copytree(run, folder)
    recipe = load_recipe("scenes")
    stages = [recipe.stage[0].model_copy(update={"start": start}) for start in starts]
    (folder / "recipe.toml").write_text(recipe.model_copy(update={"stage": tuple(stages)}).to_toml())
    return folder


@pytest.mark.parametrize(
    ("starts", "roles"),
    [
        (("scratch", "previous"), [("starter",)]),
        (("OTHER",), [("start",), ("starter",)]),
        (("OTHER", "previous", "previous"), [("start",), ("starter",)]),
        (("scratch", "OTHER"), [("start",), ("starter",)]),
        (("OTHER", "scratch"), [("starter",)]),
        (("starter",), [("start", "starter")]),
    ],
    ids=["scratch", "a run", "then further stages", "a later stage", "scratch at last", "starter"],
)
def test_baselines_are_the_start_and_the_starter(starts, roles, run, compared_runs, tmp_path):
    addresses = [str(compared_runs[2]) if start == "OTHER" else start for start in starts]
    opened = open_baselines(with_starts(run, tmp_path / "run", *addresses), "cpu")
    assert [baseline.roles for baseline in opened] == roles
    for baseline in opened:
        assert baseline.name == ("third|run" if baseline.roles == ("start",) else "starter")


def test_a_start_that_is_gone_is_reported(run, tmp_path):
    notes = []
    folder = with_starts(run, tmp_path / "mine", str(tmp_path / "gone"))
    (starter,) = open_baselines(folder, "cpu", report=notes.append)
    assert starter.roles == ("starter",)
    assert len(notes) == 1
    assert notes[0].startswith(f"not compared with what mine started from: {tmp_path / 'gone'}: no such run")


def test_a_start_that_is_the_starter_is_measured_once(run, starter, photos):
    both = Baseline(starter.model, ("start", "starter"))
    content = compare_with_baselines(run, *measured(run, photos), [both]).to_json()
    assert content["start"] == content["starter"]


def test_the_published_rows_of_the_recipe_are_there_without_the_starter(run, starter, photos, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    recipe = load_recipe("vsepp-rc-resnet152-ft")
    (folder / "recipe.toml").write_text(recipe.to_toml())
    rows = published_figures(folder)
    assert list(rows.values()) == [row for row in recipe.paper.row if row.i2t]
    assert next(iter(rows)) == "Faghri et al. 2018, VSE++, Table 3.17, Flickr30K"
    encoded, result = measured(folder, photos)
    alone = compare_with_baselines(folder, encoded, result, [])
    assert (alone.baselines, alone.published) == ((), rows)
    assert alone.to_json().keys() == {"paper"}
    assert compare_with_baselines(folder, encoded, result, [starter]).to_json().keys() == {"starter", "paper"}


def test_a_run_without_a_recipe_or_paper_has_no_rows(run, tmp_path):
    assert published_figures(run) == published_figures(tmp_path) == {}


def test_a_run_whose_objective_is_a_plug_in_is_compared_without_that_plug_in(run, starter, photos, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    content = load_recipe("vsepp-rc-resnet152-ft").to_dict()
    content["stage"][0]["objective"] = {"name": "module_that_is_not_there:Loss"}
    (folder / "recipe.toml").write_text(tomli_w.dumps(content))
    comparison = compare_with_baselines(folder, *measured(folder, photos), [starter])
    assert comparison.published == published_figures(folder) != {}
