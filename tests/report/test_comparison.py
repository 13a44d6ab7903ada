from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from diptych.data.corpus import Corpus
from diptych.data.scenes import make_scenes
from diptych.errors import DataError, ImageError, RunError
from diptych.evaluation.paired import Difference, paired
from diptych.evaluation.runs import evaluate
from diptych.models.trained import Trained
from diptych.report.comparison import compare
from diptych.report.comparison_page import (
    comparison_contents,
    first_captions,
    recall_charts,
    render_comparison,
    write_comparison,
)
from diptych.training.recipe import load_recipe
from diptych.training.train import train

SMALL = ["model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2"]


class Broken:
    def load(self):
        raise ImageError("broken.jpg: damaged")


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=24, val=6, test=14, texts=2)


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """Two runs that differ in their seed, their vocabulary, the size of their images and their number of epochs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in (
        ("plain", ["model.image.pixels=32", "stage.2.epochs=2"]),
        ("<b>other", ["model.image.pixels=16", "stage.2.epochs=1", "text.threshold=1", "seed=5"]),
    ):
        train(load_recipe("scenes", [*SMALL, *more]), corpus, folder / name, device="cpu", workers=0)
    return folder / "plain", folder / "<b>other"


@pytest.fixture(scope="module")
def comparison(runs, corpus):
    return compare(*runs, corpus, device="cpu")


def with_pictures(corpus: Corpus, pictures) -> Corpus:
    return Corpus(**{**vars(corpus), "pictures": pictures})


def printed(comparison) -> str:
    console = Console(width=100, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(comparison.render())
    return capture.get()


def test_each_run_reaches_what_it_reaches_alone(comparison, runs, corpus):
    for side, run in zip(comparison.sides, runs, strict=True):
        assert side.result.to_json() == evaluate(run, corpus, device="cpu").to_json()
        assert side.name == run.name
    folds = [side.result.folds for side in comparison.sides]
    assert comparison.difference == paired(*folds)


def test_the_first_text_is_the_best_one_and_agrees_with_the_rank(comparison, runs, corpus):
    test = corpus.split("test")
    for side, run in zip(comparison.sides, runs, strict=True):
        trained = Trained.open(run, "cpu")
        scores = trained.matcher.score(trained.encode_images(test, 0)[0], trained.encode_texts(test.texts))
        for image in range(len(test.image_ids)):
            text = side.first_text(image)
            assert float(scores[image, text]) == pytest.approx(float(scores[image].max()), abs=1e-6)
            right = test.text_groups[text] == test.image_groups[image]
            assert right == (side.result.folds[0].images[image] == 1)


def test_a_tie_is_told_as_the_rank_tells_it(comparison):
    side = comparison.first
    flat = replace(side, encoded=replace(side.encoded, texts=torch.zeros_like(side.encoded.texts)))
    image = int(np.argmax(side.result.folds[0].images > 1))
    text = flat.first_text(image)
    assert side.encoded.text_groups[text] != side.encoded.image_groups[image]


def test_an_image_that_one_of_them_cannot_read_counts_for_neither(runs, corpus):
    name = corpus.split("test").image_ids[3]
    row = list(corpus.image_ids).index(name)
    pictures = list(corpus.pictures)
    asked = []

    def encode(run, trained, part):
        if run == "plain":
            pictures[row] = Broken()
            part = with_pictures(part, [pictures[list(corpus.image_ids).index(i)] for i in part.image_ids])
        asked.append(len(part.image_ids))
        return trained.encode(part, 0)

    found = compare(*runs, corpus, device="cpu", encode=encode)
    assert asked == [14, 14, 13, 13]
    assert name not in found.corpus.image_ids
    assert found.skipped == {name: "broken.jpg: damaged"}
    for side in found.sides:
        assert len(side.result.folds[0].images) == 13
        assert list(side.encoded.corpus.image_ids) == list(found.corpus.image_ids)
        assert list(side.encoded.corpus.texts) == list(found.corpus.texts)
    assert "skipped broken.jpg: damaged" in comparison_contents(found).events


def test_runs_that_read_nothing_in_common_cannot_be_compared(runs, corpus):
    def encode(run, trained, part):
        pictures = [Broken() if (i % 2 == 0) == (run == "plain") else p for i, p in enumerate(part.pictures)]
        return trained.encode(with_pictures(part, pictures), 0)

    with pytest.raises(DataError, match="no image can be read by both runs"):
        compare(*runs, corpus, device="cpu", encode=encode)


def test_charts_tell_both_runs_and_their_stages(comparison):
    charts = recall_charts(comparison)
    for chart, name in zip(charts, ("Image to text on val", "Text to image on val"), strict=True):
        assert name in chart
        assert chart.count('class="marker"') == 3 + 2  # epochs of both, of different length
        assert chart.count("stage 2") == 2
        assert "&lt;b&gt;other" in chart


def test_captions_are_the_extremes_of_each_run_and_some_at_random(comparison):
    section = first_captions(comparison, seed=0, shown=3)
    corpus = comparison.corpus
    ranks = [side.result.folds[0].images for side in comparison.sides]
    group_of = dict(zip(corpus.texts, corpus.text_groups, strict=True))
    other, plain, drawn = section.groups
    assert [group.heading for group in section.groups] == [
        "<b>other does better",
        "plain does better",
        "Drawn at random with seed 0",
    ]
    ratios = ranks[0] / ranks[1]
    for group, best, sign in ((other, ratios.max(), 1), (plain, 1 / ratios.min(), -1)):
        rows = [corpus.image_ids.index(card.query_text) for card in group.cards]
        values = [ratios[row] ** sign for row in rows]
        assert values[0] == pytest.approx(best)
        assert values == sorted(values, reverse=True)
        assert min(values) > 1
    for card in [*other.cards, *plain.cards, *drawn.cards]:
        row = corpus.image_ids.index(card.query_text)
        truth, *found = card.beside
        assert (truth.label, group_of[truth.text]) == ("GT", corpus.image_groups[row])
        assert [each.label for each in found] == ["plain", "<b>other"]
        assert [each.value for each in found] == [str(side[row]) for side in ranks]
        assert [each.right for each in found] == [side[row] == 1 for side in ranks]
        assert card.query_picture.startswith("data:image/")
    shown = [card.query_text for group in section.groups for card in group.cards]
    assert len(set(shown)) == len(shown)
    assert first_captions(comparison, seed=0, shown=3) == section
    assert first_captions(comparison, seed=2, shown=3).groups[2].cards != drawn.cards


def test_the_page_and_the_table_tell_the_same(comparison, tmp_path):
    found = Difference(12.34, 1.26, 20.0)
    nothing = Difference(-0.04, -3.21, 2.5)
    names = {**dict.fromkeys(comparison.difference.differences, nothing), "t2i_r5": found}
    known = replace(comparison, difference=replace(comparison.difference, differences=names))
    write_comparison(tmp_path / "compare.html", known)
    page = (tmp_path / "compare.html").read_text()
    table = printed(known)
    assert page == render_comparison(comparison_contents(known))
    assert page.count('<span class="value nothing">no finding</span>') == 6
    assert "<b>other" not in page
    assert "&lt;b&gt;other − plain" in page
    assert page.count("+12.3</span>") == 1
    assert "+1.3 to +20.0" in page
    assert "0.0, −3.2 to +2.5" in page
    assert table.count("no finding -3.2 to +2.5") == 6
    assert "+12.3 +1.3 to +20.0" in table
    for side in known.sides:
        for value in (side.result.metrics.rsum, side.result.metrics.image_to_text.recalls[5]):
            assert f"{value:.1f}" in page
            assert f"{value:.1f}" in table
    assert "scenes, split test: 14 images, 28 texts" in table
    assert "<b>other" in table


def test_runs_of_one_name_are_told_by_their_paths(runs, corpus, tmp_path):
    twin = tmp_path / "plain"
    shutil.copytree(runs[0], twin)
    found = compare(runs[0], twin, corpus, device="cpu")
    assert [side.name for side in found.sides] == [str(runs[0]), str(twin)]
    assert not any(each.found for each in found.difference.differences.values())
    assert [len(group.cards) for group in first_captions(found, 0).groups] == [0, 0, 4]


def test_a_corpus_without_pictures_has_a_page_without_them(comparison):
    bare = replace(comparison, corpus=with_pictures(comparison.corpus, None))
    page = render_comparison(comparison_contents(bare))
    assert "no picture" in page
    assert "<img" not in page


def test_refusals(runs, corpus, tmp_path):
    with pytest.raises(RunError, match="the same run twice"):
        compare(runs[0], runs[0] / ".." / "plain", corpus)
    with pytest.raises(RunError, match="no such run"):
        compare(runs[0], tmp_path / "none", corpus)
    shutil.copytree(runs[0], tmp_path / "empty")
    (tmp_path / "empty" / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"empty.metrics\.jsonl: no finished epoch"):
        compare(runs[0], tmp_path / "empty", corpus)
    with pytest.raises(DataError, match="split restval has no images"):
        compare(*runs, corpus, "restval")
    pictures = [Broken() if s == "test" else p for s, p in zip(corpus.image_splits, corpus.pictures, strict=True)]
    with pytest.raises(DataError, match="no image of test could be read"):
        compare(*runs, with_pictures(corpus, pictures), device="cpu")
