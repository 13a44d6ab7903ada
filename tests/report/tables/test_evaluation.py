from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.table import Table

from diptych.evaluation.analyses.cross_retrieval import CrossRetrieval
from diptych.evaluation.analyses.score_overlap import score_overlap
from diptych.evaluation.localisation.phrase_metrics import GroundingResult
from diptych.evaluation.metrics.recall import DirectionMetrics
from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.metrics.significance import Intervals
from diptych.evaluation.protocols.rerank import RerankingResult, rerank_scores
from diptych.evaluation.protocols.retrieval import evaluate_score
from diptych.evaluation.protocols.within_modality import WithinModalityRanks, WithinModalityResult
from diptych.report.tables.evaluation import (
    cross_retrieval_table,
    overlap_table,
    phrase_table,
    reranking_table,
    result_table,
    retrieval_table,
    within_modality_table,
)


def printed(table: Table, width: int = 140) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def line_with(words: str, lines: list[str]) -> int:
    return next(number for number, line in enumerate(lines) if words in line)


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(100, 300, generator=torch.Generator().manual_seed(0))


GROUPS = np.arange(100), np.arange(300) // 3


@pytest.mark.parametrize("average_precision", [False, True])
def test_retrieval_has_every_metric_in_its_row_above_its_interval(scores, average_precision):
    result = evaluate_score(matrix_score(scores), *GROUPS, folds=4, draws=50, average_precision=average_precision)
    lines = printed(retrieval_table(result))
    assert any("4 folds of 25 images: 100 images, 300 texts" in line for line in lines)
    assert any("95% intervals from 50 draws of groups" in line for line in lines)
    for label, direction, prefix in (
        ("image to text", result.metrics.image_to_text, "i2t"),
        ("text to image", result.metrics.text_to_image, "t2i"),
    ):
        values = {f"{prefix}_r{cutoff}": direction.recalls[cutoff] for cutoff in (1, 5, 10)}
        if average_precision:
            values[f"{prefix}_map"] = direction.mean_average_precision
        bounds = [result.intervals.bounds[name] for name in values]
        row = line_with(label, lines)
        cells = [f"{value:.1f}" for value in values.values()]
        assert lines[row].split() == [*label.split(), *cells, f"{direction.median:g}", f"{direction.mean:.1f}"]
        assert lines[row + 1].split() == [f"{low:.1f}–{high:.1f}" for low, high in bounds]
    low, high = result.intervals.bounds["rsum"]
    row = line_with("rsum", lines)
    assert lines[row].split() == ["rsum", f"{result.metrics.rsum:.1f}"]
    assert lines[row + 1].split() == [f"{low:.1f}–{high:.1f}"]


def test_retrieval_fits_80_columns(scores):
    result = evaluate_score(matrix_score(scores), *GROUPS, draws=5, average_precision=True)
    narrow, wide = (printed(retrieval_table(result), width) for width in (80, 140))
    for label in ("image to text", "text to image", "rsum"):
        row, expected = line_with(label, narrow), line_with(label, wide)
        assert [narrow[row].split(), narrow[row + 1].split()] == [wide[expected].split(), wide[expected + 1].split()]


def test_any_result_is_shown_as_it_prints(scores):
    result = evaluate_score(matrix_score(scores), *GROUPS, draws=5)
    shown = [line.split() for line in printed(result_table(result)) if line.strip(" ─")]
    assert shown == [line.split() for line in str(result).splitlines() if line]


@pytest.mark.parametrize(
    ("alone", "ends"), [(0, "draws of groups"), (2, "2 alone in their group, not used as queries")]
)
def test_within_one_modality_counts_those_without_a_partner(alone, ends):
    ranks = WithinModalityRanks(np.array([2, 7]), np.array([5, 5]), np.array([0, 1]), alone)
    intervals = Intervals({"i2i_r1": (0.0, 12.3), "i2i_r5": (40.0, 60.0)}, 0.95, 1000, 0)
    result = WithinModalityResult("images", DirectionMetrics({1: 0.0, 5: 50.0}, 4.0, 4.5), intervals, ranks)
    table = within_modality_table(result)
    assert table.title == f"images among {2 + alone} images"
    assert str(table.caption).endswith(ends)
    lines = printed(table)
    row = line_with("50.0", lines)
    assert lines[row].split() == ["0.0", "50.0", "4", "4.5"]
    assert lines[row + 1].split() == ["0.0–12.3", "40.0–60.0"]


def test_reranking_has_one_row_per_length(scores):
    def pairs(images, texts):
        return scores.T.reshape(100, 300)[images, texts]

    result = RerankingResult(tuple(rerank_scores(pairs, matrix_score(scores), *GROUPS, [3, 1200])))
    table = reranking_table(result)
    assert [len(list(column.cells)) for column in table.columns] == [3] * 10
    assert list(table.columns[0].cells) == ["list alone", "3", "1,200"]
    assert list(table.columns[7].cells) == [f"{row.metrics.rsum:.1f}" for row in result.rows]
    assert list(table.columns[8].cells) == ["0.00", f"{result.rows[1].percent_scored:.2f}", "100.00"]


def test_cross_retrieval_has_one_column_per_interval():
    cross = np.array([1.0, 1.0, 1.5, 5.0, 5.5, 10.0, 20.0, 50.0, 100.0, 200.0, 200.5, 9999.0])
    rows = np.arange(12)
    table = cross_retrieval_table(CrossRetrieval(rows, rows, rows, rows, cross))
    assert table.title == "cross-retrieval rank of 12 pairs"
    assert [next(iter(column.cells)) for column in table.columns] == [
        *("percent", "16.7", "16.7", "16.7", "8.3", "8.3", "8.3", "8.3", "16.7")
    ]


def test_overlap_has_both_means_and_the_shared_area():
    scores = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)) / 3
    result = score_overlap(matrix_score(scores), np.arange(4), np.arange(8) // 2, bins=20)
    table = overlap_table(result)
    assert [list(column.cells)[:2] for column in table.columns] == [
        ["positive", "negative"],
        ["8", "24"],
        [f"{result.positive_mean:.4f}", f"{result.negative_mean:.4f}"],
    ]
    low, high = result.interval
    assert list(table.columns[2].cells)[2] == f"{result.shared:.4f}\n[dim]{low:.4f}–{high:.4f}[/]"
    assert table.caption == "20 bins from -1 to 1"


def grounding(**more) -> GroundingResult:
    kinds = [("people",), (), ("vehicles",)]
    ranks, images, rows = np.array([1, 30, math.inf]), np.array([0, 0, 2]), np.arange(3)
    return GroundingResult(ranks, images, kinds, rows, np.zeros((3, 4), np.float32), **more)


def test_phrases_have_a_row_for_all_and_one_per_kind():
    lines = printed(phrase_table(grounding()))
    assert "3 phrases in 2 images: a region is right from overlap 0.5" in lines[0]
    assert lines[line_with("all", lines)].split() == ["all", "3", "33.3", "33.3", "33.3", "66.7"]
    assert lines[line_with("people", lines)].split() == ["people", "1", "100.0", "100.0", "100.0", "100.0"]
    assert lines[line_with("vehicles", lines)].split() == ["vehicles", "1", "0.0", "0.0", "0.0", "0.0"]
    assert not any("left out" in line for line in lines)


def test_phrases_count_the_images_that_could_not_be_measured():
    table = phrase_table(grounding(skipped={"a.jpg": "a.jpg: truncated"}, empty=["b.jpg"]))
    assert str(table.caption).endswith("draws of images; images left out: 1, without a region: 1")
