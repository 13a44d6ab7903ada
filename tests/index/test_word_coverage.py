import math

import numpy as np
import pytest

from diptych.index.word_coverage import content_words, coverage


def test_words_that_say_nothing_are_left_out():
    assert content_words("A dog on the beach, a DOG") == ["dog", "beach"]
    assert content_words('black & white "t-shirts" (the)') == ["black", "white", "t-shirts"]
    assert content_words("on the") == ["on", "the"]
    assert content_words("犬 2021") == ["犬", "2021"]


def test_the_coverage_is_the_share_of_the_information(kit, store):
    kit.put(store, ["n"], ["a red dog"])
    kit.put(store, ["m"], ["a dog"])
    kit.put(store, [f"k{number}" for number in range(8)])
    ids = store.by_words("red dog", every=False)[0]
    red, dog, cat = (math.log(11 / (count + 0.5)) for count in (1, 2, 0))
    found = dict(zip(ids.tolist(), coverage(store, ["red", "dog", "cat"], ids, 10).tolist(), strict=True))
    captioned = store.described_by(["red"]).tolist()[0]
    assert found.pop(captioned) == pytest.approx((red + dog) / (red + dog + cat))
    assert [*found.values()] == pytest.approx([dog / (red + dog + cat)])
    assert coverage(store, ["cat"], np.zeros(0, np.int64), 10).tolist() == []
