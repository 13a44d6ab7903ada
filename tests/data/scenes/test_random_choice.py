from collections import Counter
from random import Random

from diptych.data.scenes.random_choice import pick, shuffled


def test_options_are_drawn_uniformly():
    random = Random("seed")
    counts = Counter(pick(random, "abcd") for _ in range(4000))
    assert set(counts) == set("abcd")
    assert min(counts.values()) > 850


def test_a_shuffle_is_the_same_in_every_python_and_loses_nothing():
    assert "".join(shuffled(Random("seed"), "abcdefgh")) == "eabdhgcf"
    assert Counter(shuffled(Random("seed"), "aabc")) == Counter("aabc")
