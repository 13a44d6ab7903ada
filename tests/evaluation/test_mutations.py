"""Small wrongs in the rank code, each of which must show: the tests are only as good as what they would catch."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.evaluation.metrics import ranks as module
from diptych.evaluation.metrics import recall

SOURCE = Path(module.__file__).read_text()
MUTATIONS = [
    ("the sign", "torch.ge(tile, thresholds", "torch.le(tile, thresholds"),
    ("optimistic ties", "torch.ge(tile, thresholds", "torch.gt(tile, thresholds"),
    ("off by one", "self.counts.numpy() + 1", "self.counts.numpy()"),
    (
        "the worst positive",
        "torch.maximum(side.best[span], scores.amax(axis)",
        "torch.minimum(side.best[span], scores.amin(axis)",
    ),
    ("no mask while counting", "above.masked_fill_(positives, 0)", "pass"),
    ("no mask while learning", "tile.masked_fill(~positives, -torch.inf)", "tile"),
    ("the mask turned round", "tile.masked_fill(~positives, -torch.inf)", "tile.masked_fill(positives, -torch.inf)"),
    ("a panel counted twice", "[other for other in panels if other is not panel]", "panels"),
    ("order lost", "ranks[self.order] = ", "ranks[:] = "),
]


def plain(scores, query_groups, answer_groups):
    """1 + the negatives that score at least as high as the best positive, one query at a time."""
    found = []
    for row, group in zip(scores, query_groups, strict=True):
        best = max(score for score, other in zip(row, answer_groups, strict=True) if other == group)
        worse = sum(score >= best for score, other in zip(row, answer_groups, strict=True) if other != group)
        found.append(1 + worse)
    return found


def disagreements(code):
    """In how many random cases an implementation differs from the plain one; scores are coarse, so ties are common."""
    random = np.random.default_rng(0)
    found = 0
    for _ in range(20):
        image_groups = random.permutation(np.repeat(np.arange(5), [1, 2, 1, 3, 1]))
        text_groups = random.permutation(np.repeat(np.arange(5), [5, 1, 2, 3, 4]))
        scores = random.integers(0, 6, (8, 15)).astype(np.float32)
        ranked = code.ranks(code.matrix_score(torch.from_numpy(scores)), image_groups, text_groups, block=24)
        right = plain(scores, image_groups, text_groups), plain(scores.T, text_groups, image_groups)
        found += ranked.images.tolist() != right[0] or ranked.texts.tolist() != right[1]
    return found


@pytest.mark.parametrize(("old", "new"), [change[1:] for change in MUTATIONS], ids=[change[0] for change in MUTATIONS])
def test_a_mutation_of_the_ranks_is_caught(old, new, monkeypatch):
    assert old in SOURCE, "the code has changed: change the mutation with it"
    mutant = types.ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)  # dataclasses look their module up
    exec(compile(SOURCE.replace(old, new), "mutant", "exec"), vars(mutant))
    assert disagreements(mutant) > 0


def test_without_a_mutation_nothing_is_caught():
    assert disagreements(module) == 0


@pytest.mark.parametrize("wrong", [lambda ranks, k: np.mean(ranks < k) * 100, lambda ranks, k: np.mean(ranks <= k)])
def test_a_wrong_recall_would_differ(wrong):
    ranks = np.array([1, 2, 5, 11])
    assert recall.recall_at(ranks, 5) == 75
    assert wrong(ranks, 5) != 75
