import numpy as np
import pytest

from diptych.index.exact import Pool
from diptych.index.examples import EXAMPLES, EncodedPhrases, choose_examples, phrases
from diptych.index.search import Searcher
from diptych.models.calibration.calibration import Calibration, LogisticFit

SIZE = 6
FIT = LogisticFit(np.array([10, 0, 0, 0, 0, 0, 0], np.float32), -5.0)  # a score of 0.5 has a probability of one half
CALIBRATION = Calibration("fake", FIT, FIT, np.ones((1, SIZE), np.float32), {})


def pool_of(*things):
    vectors = np.eye(SIZE, dtype=np.float32)[list(things)]
    return Pool(np.arange(len(vectors)), vectors)


@pytest.fixture
def encoded():
    """Six phrases, each of its own thing, and one of the first thing, less."""
    vectors = np.eye(SIZE, dtype=np.float32)
    vectors = np.concatenate([vectors, 0.9 * vectors[:1]])
    return EncodedPhrases(list("abcdefg"), vectors, np.zeros((7, 6), np.float32))


def test_an_example_has_several_photos_that_no_other_example_shows(encoded):
    assert choose_examples(pool_of(0, 0, 0, 1, 1, 2), encoded, CALIBRATION) == ("a",)
    assert set(choose_examples(pool_of(0, 0, 0, 1, 1, 1), encoded, CALIBRATION)) == {"a", "b"}
    assert len(choose_examples(pool_of(*[0, 1, 2] * 3), encoded, CALIBRATION, 2)) == 2


def test_few_photos_and_none(encoded):
    assert choose_examples(pool_of(1), encoded, CALIBRATION) == ("b",)
    assert choose_examples(pool_of(), encoded, CALIBRATION) == ()


def test_the_phrases_are_everyday_queries_each_once():
    assert len(set(phrases())) == len(phrases()) > 150
    assert all(phrase == phrase.strip() for phrase in phrases())


def test_examples_follow_the_index_and_need_a_calibration(kit, store):
    kit.put(store, [f"n{i}" for i in range(4)])
    searcher = Searcher(store, kit.FakeModel())
    assert searcher.examples() == ()
    searcher = Searcher(store, kit.FakeModel())
    searcher.calibration = CALIBRATION
    first = searcher.examples()
    assert 0 < len(first) <= EXAMPLES
    assert set(first) <= set(phrases())
    kit.put(store, [f"m{i}" for i in range(40)])
    changed = searcher.examples()
    fresh = Searcher(store, kit.FakeModel())
    fresh.calibration = CALIBRATION
    assert changed == fresh.examples() != first
