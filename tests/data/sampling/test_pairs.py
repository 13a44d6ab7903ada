import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Corpus
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


@given(groups, groups, st.integers(2, 9), st.integers(0, 99))
def test_an_epoch_holds_every_text_once_with_an_image_of_its_group(image_groups, text_groups, size, seed):
    corpus = corpus_of(image_groups, text_groups)
    sampler = PairSampler(corpus, size, (seed,))
    batches = sampler.epoch(3)
    images = np.concatenate([batch.images for batch in batches])
    texts = np.concatenate([batch.texts for batch in batches])
    rankable = [j for j, group in enumerate(text_groups) if group in image_groups]
    assert sorted(texts) == rankable
    assert (corpus.image_groups[images] == corpus.text_groups[texts]).all()
    assert all(len(batch.texts) <= size + 1 for batch in batches)
    assert all(len(batch.texts) > 1 for batch in batches) or len(rankable) < 2  # no pair alone, without a negative
    assert len(sampler) == len(batches)


def test_the_order_depends_on_seed_and_epoch_alone():
    corpus = corpus_of([0, 0, 1, 2], [0, 1, 2, 0, 1, 2, 2])

    def order(seed, epoch):
        return [pairs.texts.tolist() + pairs.images.tolist() for pairs in PairSampler(corpus, 3, seed).epoch(epoch)]

    assert order((1, 1), 5) == order((1, 1), 5)
    assert len({str(order(*key)) for key in [((1, 1), 5), ((2, 1), 5), ((1, 2), 5), ((1, 1), 6)]}) == 4
