import numpy as np
import pytest
import torch

from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.protocols.retrieval import evaluate_score
from diptych.report.sections.recall import recall_rows

GROUPS = np.repeat(np.arange(4), 2), np.repeat(np.arange(4), 3)  # two images and three texts a group


def result(**options):
    scores = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    return evaluate_score(matrix_score(scores), *GROUPS, draws=50, **options)


def test_rows_have_map_if_it_was_measured():
    measured = result(average_precision=True)
    for direction, key in zip(recall_rows(measured), ("i2t", "t2i"), strict=True):
        assert direction.average_precision.value == measured.metrics.to_json()[f"{key}_map"]
        assert direction.average_precision.interval == measured.intervals.bounds[f"{key}_map"]
    assert [direction.average_precision for direction in recall_rows(result())] == [None, None]


@pytest.mark.parametrize("precise", [False, True])
def test_rows_have_the_metrics_of_their_direction(precise):
    measured = result(average_precision=precise)
    names = measured.metrics.to_json()
    for direction, key in zip(recall_rows(measured), ("i2t", "t2i"), strict=True):
        assert {k: own.value for k, own in direction.recall.items()} == {k: names[f"{key}_r{k}"] for k in (1, 5, 10)}
        assert direction.recall[5].interval == measured.intervals.bounds[f"{key}_r5"]
        assert (direction.median_rank.value, direction.mean_rank.value) == (
            names[f"{key}_median"],
            names[f"{key}_mean"],
        )
