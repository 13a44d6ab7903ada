"""A run against the starter and the paper; here another small run stands for the starter."""

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
from diptych.report.starter_comparison import compare_with_starter, published_figures
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
    return Model.load(compared_runs[0], "cpu")


def measured(run, part, **options):
    encoded = Model.load(run, "cpu").encode_corpus(part)
    return encoded, evaluate_encoded([encoded], **options)


@pytest.mark.parametrize("options", [{}, {"folds": 2}, {"gallery": 4}], ids=["one gallery", "folds", "gallery"])
def test_both_are_measured_alike_on_the_same_images(options, run, starter, photos):
    encoded, result = measured(run, photos, **options)
    comparison = compare_with_starter(run, encoded, result, starter, gallery=options.get("gallery"))
    _, expected = measured(starter.address, photos, **options)
    assert comparison.starter.metrics == expected.metrics
    assert comparison.starter.protocol == result.protocol
    assert comparison.difference == paired_difference(expected.folds, result.folds)
    content = comparison.to_json()
    assert content.keys() == {"starter"}
    assert content["starter"]["metrics"]["rsum"] == expected.metrics.rsum
    difference = content["starter"]["difference"]["differences"]["rsum"]["value"]
    assert difference == pytest.approx(result.metrics.rsum - expected.metrics.rsum)


def test_what_is_computed_is_shown(run, starter, photos):
    titles = []

    @contextmanager
    def progress(title):
        titles.append(title)
        yield lambda done, total: None

    compare_with_starter(run, *measured(run, photos), starter, progress=progress)
    assert titles == ["encoding with the starter, to compare (--no-starter skips it)"]


def test_nothing_is_compared_where_the_starter_says_nothing(run, starter, corpus, photos, tmp_path):
    encoded, result = measured(run, photos)
    assert compare_with_starter(run, encoded, result, None) is None
    assert compare_with_starter(run, replace(encoded, corpus=None), result, starter) is None  # a file of encodings
    assert compare_with_starter(run, *measured(run, corpus.split("test")), starter) is None  # drawn scenes
    assert compare_with_starter(run, encoded, result, Model.load(run, "cpu")) is None  # the starter itself
    copy = shutil.copytree(run, tmp_path / "copy")
    assert compare_with_starter(copy, encoded, result, Model.load(run, "cpu")) is None
    persons = as_photos(make_scenes(train=0, val=0, test=4, texts=2, images=2))
    assert compare_with_starter(run, *measured(run, persons), starter) is None
    features = replace(encoded, corpus=with_features(corpus.split("test")))
    assert compare_with_starter(run, features, result, starter) is None


def test_the_published_rows_of_the_recipe_are_there_without_the_starter(run, starter, photos, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    recipe = load_recipe("vsepp-rc-resnet152-ft")
    (folder / "recipe.toml").write_text(recipe.to_toml())
    rows = published_figures(folder)
    assert list(rows.values()) == [row for row in recipe.paper.row if row.i2t]
    assert next(iter(rows)) == "Faghri et al. 2018, VSE++, Table 3.17, Flickr30K"
    encoded, result = measured(folder, photos)
    alone = compare_with_starter(folder, encoded, result, None)
    assert (alone.starter, alone.difference, alone.published) == (None, None, rows)
    assert alone.to_json().keys() == {"paper"}
    assert compare_with_starter(folder, encoded, result, starter).to_json().keys() == {"starter", "paper"}


def test_a_run_without_a_recipe_or_paper_has_no_rows(run, tmp_path):
    assert published_figures(run) == published_figures(tmp_path) == {}


def test_a_run_whose_objective_is_a_plug_in_is_compared_without_that_plug_in(run, starter, photos, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    content = load_recipe("vsepp-rc-resnet152-ft").to_dict()
    content["stage"][0]["objective"] = {"name": "module_that_is_not_there:Loss"}
    (folder / "recipe.toml").write_text(tomli_w.dumps(content))
    assert compare_with_starter(folder, *measured(folder, photos), starter).published == published_figures(folder) != {}
