import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.evaluation.metrics.chance import chance_metrics, chance_recall
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.recall import metrics_from_ranks
from diptych.evaluation.metrics.scores import matrix_score


@settings(max_examples=25)
@given(st.lists(st.integers(0, 2), min_size=3, max_size=8), st.integers(1, 9))
def test_chance_is_the_mean_recall_of_random_orders(answers, cutoff):
    answers = np.array(answers)
    queries = np.unique(answers)
    random = np.random.default_rng(0)
    hits = [np.mean([query in random.permutation(answers)[:cutoff] for query in queries]) for _ in range(400)]
    assert abs(chance_recall(queries, answers, cutoff) - 100 * np.mean(hits)) < 10


def test_five_hundred_images_with_five_texts():
    images = np.arange(500)
    texts = np.repeat(images, 5)
    assert chance_recall(texts, images, 1) == pytest.approx(0.2)
    assert chance_recall(images, texts, 1) == pytest.approx(0.2)
    assert chance_recall(texts, images, 500) == pytest.approx(100)


def test_the_metrics_of_chance_are_those_of_random_scores_by_name():
    images, texts = np.arange(40) // 2, np.arange(90) // 3 % 20
    random = np.random.default_rng(0)
    measured = [
        metrics_from_ranks(ranks(matrix_score(torch.from_numpy(scores)), images, texts)).to_json()
        for scores in random.standard_normal((200, 40, 90))
    ]
    expected = chance_metrics(images, texts)
    assert expected.keys() == {name for name in measured[0] if "_r" in name} | {"rsum"}
    for name, value in expected.items():
        assert value == pytest.approx(np.mean([each[name] for each in measured]), abs=1.5 if name != "rsum" else 4)
