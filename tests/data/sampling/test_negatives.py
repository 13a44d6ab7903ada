import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Corpus
from diptych.data.sampling.negatives import DrawnNegatives, NegativeTexts
from diptych.data.sampling.neighbours import SecondPositives
from diptych.data.sampling.pairs import PairSampler


def corpus_of(image_groups, text_groups):
    images, texts = len(image_groups), len(text_groups)
    return Corpus(
        "test",
        [f"image{i}" for i in range(images)],
        np.array(image_groups, np.int64),
        np.full(images, "train"),
        [f"text {j}" for j in range(texts)],
        np.array(text_groups, np.int64),
        np.full(texts, "train"),
    )


groups = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@given(groups, groups, st.integers(2, 9), st.integers(1, 4), st.booleans())
def test_negative_texts_are_of_the_batch_and_of_other_groups(image_groups, text_groups, size, count, neighbours):
    corpus = corpus_of(image_groups, text_groups)
    extensions = [NegativeTexts(corpus.text_groups, count)]
    if neighbours:
        extensions.insert(0, SecondPositives(corpus.image_groups, corpus.text_groups))
    sampler = PairSampler(corpus, size, (3,), (), extensions)
    for again, pairs in zip(sampler.epoch(1), sampler.epoch(1), strict=True):
        drawn = pairs.extras[DrawnNegatives].texts
        assert pairs.extras[DrawnNegatives].images is None
        assert drawn.shape == (len(pairs.texts), count)
        np.testing.assert_array_equal(drawn, again.extras[DrawnNegatives].texts)
        assert set(drawn[drawn >= 0].tolist()) <= set(pairs.texts.tolist())
        own = corpus.text_groups[pairs.texts]
        assert (corpus.text_groups[drawn] != own[:, None])[drawn >= 0].all()
        if len(set(own.tolist())) == 1:
            assert (drawn == -1).all()
        elif (
            len(own) and np.bincount(own).max() <= len(own) / 2
        ):  # missing twenty times is then less than one in a million
            assert (drawn >= 0).all()


def test_every_text_of_another_group_can_be_drawn():
    corpus = corpus_of([0, 1, 2], [0, 0, 1, 2, 2])
    negatives = {text: set() for text in range(5)}
    for epoch in range(60):
        (pairs,) = PairSampler(corpus, 5, (0,), (), [NegativeTexts(corpus.text_groups, 1)]).epoch(epoch)
        for text, (negative,) in zip(pairs.texts.tolist(), pairs.extras[DrawnNegatives].texts.tolist(), strict=True):
            negatives[text].add(negative)
    assert negatives == {0: {2, 3, 4}, 1: {2, 3, 4}, 2: {0, 1, 3, 4}, 3: {0, 1, 2}, 4: {0, 1, 2}}
