import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.evaluation.metrics.chance import chance_recall


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
