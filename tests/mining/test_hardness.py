import numpy as np
import pytest

from diptych.mining.hardness import Hardness
from diptych.mining.top_scores import EMPTY, TopScores


def keys(rows):
    """The keys of lists of scores, in descending order."""
    top = TopScores(len(rows), max(map(len, rows)))
    for row, scores in enumerate(rows):
        if scores:
            top.offer(np.array([scores], np.float32), slice(row, row + 1), slice(0, len(scores)))
    return top.best()


def test_medians_are_of_the_first_and_last_entries_of_each_list():
    texts = keys([[0.75, 0.5, 0.25], [0.5], [1.0, 0.125]])
    images = keys([[2.0, 1.0], [4.0, 3.0]])
    found = Hardness.from_keys(np.array([0.5, 1.0, 3.0], np.float32), texts, images)
    assert found == Hardness(positive=1.0, first_text=0.75, last_text=0.25, first_image=3.0, last_image=2.0)


def test_empty_lists_do_not_count():
    texts = keys([[0.75, 0.5], [], [0.25]])
    assert (texts[1] == EMPTY).all()
    found = Hardness.from_keys(np.ones(1, np.float32), texts, texts)
    assert (found.first_text, found.last_text) == (0.5, 0.375)


def test_an_infinite_median_can_be_stored_as_json():
    found = Hardness.from_keys(np.array([np.inf], np.float32), keys([[1.0]]), keys([[1.0]]))
    assert Hardness.model_validate_json(found.model_dump_json()) == found
    assert found.positive == pytest.approx(np.finfo(np.float32).max)
