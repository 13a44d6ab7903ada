from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from markupsafe import escape

from diptych.data.corpus import Corpus
from diptych.evaluation.analyses.cross_retrieval import cross_retrieval
from diptych.evaluation.metrics.chance import chance_recall
from diptych.evaluation.metrics.paired_difference import Difference
from diptych.evaluation.runs import encoded_score
from diptych.report.comparison.compare import compare
from diptych.report.comparison.page import comparison_page, recall_charts, render_comparison_page, write_comparison_page
from diptych.report.sections.cross_retrieval import cross_retrieval_chart


def test_charts_show_all_runs_and_the_starts_of_stages(three):
    charts = recall_charts(three)
    for chart, name in zip(charts, ("Image to text on val", "Text to image on val"), strict=True):
        assert name in chart
        assert chart.count('class="marker"') == 3 + 2 + 2  # epochs of each, of different length
        assert chart.count("stage 2") == 1  # at the same epoch in all
        assert "&lt;b&gt;other" in chart
        assert "third|run" in chart
    longer = [three.runs[2].epochs[0], *three.runs[2].epochs]
    later = replace(three, runs=(*three.runs[:2], replace(three.runs[2], epochs=longer)))
    assert [chart.count("stage 2") for chart in recall_charts(later)] == [2, 2]


def test_the_page_shows_values_differences_and_queries(three, tmp_path):
    found, nothing = Difference(12.34, 1.26, 20.0), Difference(-0.04, -3.21, 2.5)
    runs = [three.baseline]
    for run in three.runs[1:]:
        named = dict.fromkeys(run.difference.differences, nothing) | ({"t2i_r5": found} if len(runs) == 1 else {})
        runs.append(replace(run, difference=replace(run.difference, differences=named)))
    known = replace(three, runs=tuple(runs), notes=["data: is new"], skipped={"x": "x.jpg: damaged"})
    write_comparison_page(tmp_path / "compare.html", known)
    page = (tmp_path / "compare.html").read_text()
    assert page == render_comparison_page(comparison_page(known))
    assert '<h1 dir="auto">plain, &lt;b&gt;other and third|run</h1>' in page
    assert "<b>other" not in page
    assert page.count('<span class="value not-significant">not significant</span>') == 13
    assert page.count('+12.3<abbr title="its interval excludes 0">*</abbr></span>') == 1
    assert page.count("*</abbr>") == 1
    assert "+1.3 to +20.0" in page
    assert "0.0, −3.2 to +2.5" in page
    assert "<li>data: is new</li>" in page
    assert "<li>skipped x.jpg: damaged</li>" in page
    for run in known.runs:
        for value in (run.result.metrics.rsum, run.result.metrics.image_to_text.recalls[5]):
            assert f'<span class="value">{value:.1f}</span>' in page


def test_bars_show_the_cross_retrieval_ranks_of_all_runs(three):
    chart = comparison_page(three).cross_retrieval
    assert chart.count('class="column"') == 3 * 8
    assert chart == cross_retrieval_chart({run.name: run.cross_retrieval for run in three.runs})
    for run in three.runs:
        groups = run.encoded.image_groups, run.encoded.text_groups
        expected = cross_retrieval(encoded_score(run.encoded), *groups)
        assert run.cross_retrieval.cross_ranks.tolist() == expected.cross_ranks.tolist()
        assert f"{escape(run.name)}: {expected.percentages['6–10']:.4g} at 6–10" in chart
    assert chart in render_comparison_page(comparison_page(three))


def test_correct_answers_are_marked_by_more_than_colour(three):
    contents = comparison_page(three)
    page = render_comparison_page(contents)
    for side in contents.differing:
        queries = [query for group in side.groups for query in group.queries]
        answers = [answer for query in queries for finding in query.answers_by_run for answer in finding.answers]
        opening = '<li class="{}">' if side.direction == "image to text" else '<figure class="tile {}">'
        for right in (True, False):
            name = "correct" if right else "incorrect"
            wanted = sum(answer.correct == right for answer in answers)
            assert wanted > 0
            assert page.count(opening.format(name)) == wanted
    total = page.count('class="correct"') + page.count("tile correct")
    assert page.count('aria-label="correct"') == total
    assert page.count('<span class="bracket">[') == 3 * page.count('<article class="card differing">')


def test_equal_titles_are_shown_once(two):
    title = two.baseline.title
    assert comparison_page(two).subtitle == title
    other = replace(two, runs=(two.runs[0], replace(two.runs[1], title="Other")))
    assert comparison_page(other).subtitle == f"plain: {title}; <b>other: Other"


def test_with_folds_the_page_has_no_queries_and_the_mean_chance(compared_runs, compared_corpus):
    folds = compare(compared_runs[:2], compared_corpus, folds=3, device="cpu")
    contents = comparison_page(folds)
    assert contents.differing == []
    assert contents.cross_retrieval is None
    assert 'id="cross-retrieval"' not in render_comparison_page(contents)
    assert "where the runs differ" not in render_comparison_page(contents)
    parts = folds.baseline.result.folds
    chances = [chance_recall(part.image_groups, part.text_groups, 5) for part in parts]
    assert len(set(chances)) > 1
    assert contents.recall["image to text"][0].recall.chance[5] == pytest.approx(np.mean(chances))
    assert contents.recall["text to image"][0].recall.chance[5] == 100


def test_a_corpus_without_pictures_has_a_page_without_them(two):
    bare = replace(two, corpus=Corpus(**{**vars(two.corpus), "pictures": None}))
    contents = comparison_page(bare)
    page = render_comparison_page(contents)
    assert "no picture" in page
    assert "<img" not in page
    found = contents.differing[1].groups[-1].queries[0].answers_by_run[0].answers[0].caption
    assert f'<figcaption><span class="caption" dir="auto">{found}</span></figcaption>' in page
