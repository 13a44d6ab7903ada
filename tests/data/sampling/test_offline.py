from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Corpus, Features
from diptych.data.read_ahead import read_ahead
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.offline import OfflineNegatives, OfflineSampler, OfflineSettings
from diptych.data.sampling.pairs import Pairs, PairSampler
from diptych.features.readers import FeatureReader
from diptych.text.vocabulary import Vocabulary


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
        features=Features([np.arange(images, dtype=np.float32)[:, None]]),
    )


def lists_of(corpus, width):
    """Every negative of each image and of each text, cut or filled to a width."""

    def rows(groups, others):
        table = np.full((len(groups), width), -1, np.int32)
        for row, group in enumerate(groups):
            found = np.flatnonzero(others != group)[:width]
            table[row, : len(found)] = found
        return table

    return rows(corpus.image_groups, corpus.text_groups), rows(corpus.text_groups, corpus.image_groups)


FOUR = corpus_of([0, 1, 2, 3, 3], [0, 0, 1, 1, 2, 3, 3])

corpora = st.lists(st.integers(0, 5), min_size=2, max_size=12).flatmap(
    lambda groups: st.permutations(groups).map(lambda texts: corpus_of(groups, [*texts, *groups]))
)
settings = st.builds(
    OfflineSettings,
    lists=st.just("previous"),
    top_texts=st.integers(1, 8),
    top_images=st.integers(1, 8),
    draw=st.sampled_from(["uniform", "normal"]),
    single_draw=st.booleans(),
)


@given(corpora, settings, st.integers(1, 12), st.integers(0, 99))
def test_draws_come_from_the_lists_and_groups(corpus, how, width, seed):
    texts_of, images_of = lists_of(corpus, width)
    pairs = PairSampler(corpus, 4, (seed,), [OfflineSampler(corpus, texts_of, images_of, how)]).epoch(1)
    for batch in pairs:
        offline = batch.extras[OfflineNegatives]
        for k, (image, text) in enumerate(zip(batch.images, batch.texts, strict=True)):
            allowed = texts_of[image][: how.top_texts], images_of[text][: how.top_images]
            lists = [set(row[row >= 0].tolist()) for row in allowed]
            assert offline.is_drawn[k] == all(lists)
            if not offline.is_drawn[k]:
                assert (offline.texts[k] == text).all()
                assert (offline.images[k] == image).all()
                assert not offline.is_negative[k]
                continue
            assert offline.texts[k, 0] in lists[0]
            assert offline.images[k, 0] in lists[1]
            image_group, text_group = (
                corpus.image_groups[offline.images[k]],
                corpus.text_groups[offline.texts[k]],
            )
            assert image_group[1] == text_group[0]  # an image of the drawn text
            assert text_group[1] == image_group[0]  # a text of the drawn image
            assert offline.is_negative[k] == (image_group[0] != text_group[0])


def draws(how, epochs=400):
    texts_of, images_of = lists_of(FOUR, 5)
    sampler = PairSampler(FOUR, 3, (1,), [OfflineSampler(FOUR, texts_of, images_of, OfflineSettings(lists="x", **how))])
    found = [batch for epoch in range(epochs) for batch in sampler.epoch(epoch)]
    joined = [
        np.concatenate([getattr(batch.extras[OfflineNegatives], name) for batch in found])
        for name in ("images", "texts", "is_negative")
    ]
    return np.concatenate([batch.texts for batch in found]), *joined


def test_what_corresponds_is_drawn_again_where_there_is_a_way():
    _, images, texts, apart = draws({})
    assert apart.all()
    assert (FOUR.image_groups[images[:, 0]] != FOUR.text_groups[texts[:, 0]]).all()


def test_lists_that_only_correspond_are_left_as_they_are():
    corpus = corpus_of([0, 1], [0, 1])  # the only negatives of a pair are each other's own
    offline = OfflineSampler(corpus, *lists_of(corpus, 3), OfflineSettings(lists="x"))
    drawn = offline.draw(np.array([0, 1]), np.array([0, 1]), np.random.default_rng(0))
    assert drawn.is_drawn.all()
    assert not drawn.is_negative.any()


def test_uniform_draws_are_even():
    own, _, texts, _ = draws({"top_images": 1, "top_texts": 4}, 1000)
    here = texts[own == 4][:, 0]  # image 2 has the texts 0, 1, 2, 3 first; text 4 the image 0, whose own texts are out
    counts = np.bincount(here, minlength=4)
    assert counts[:2].sum() == 0
    assert counts[2] == pytest.approx(counts[3], rel=0.2)


def test_normal_draws_spare_both_ends_of_the_list():
    corpus = corpus_of(range(61), range(61))
    texts_of = np.tile(np.arange(1, 61, dtype=np.int32), (61, 1))
    sampler = OfflineSampler(corpus, texts_of, texts_of, OfflineSettings(lists="x", draw="normal", top_images=60))
    zeros = np.zeros(20_000, np.int64)
    places = sampler.draw(zeros, zeros, np.random.default_rng(3)).texts[:, 0] - 1
    assert places.mean() == pytest.approx(29.5, abs=0.3)
    assert places.std() == pytest.approx(10, rel=0.05)
    assert np.mean(places < 10) < 0.04


def test_a_single_draw_takes_the_same_place_of_both_lists():
    """As the authors' code: place n of 300 texts goes with place n // 5 of 60 images."""
    corpus = corpus_of(range(400), range(400))
    texts_of = np.tile(np.arange(60, 360, dtype=np.int32), (400, 1))
    images_of = np.tile(np.arange(60, dtype=np.int32), (400, 1))
    sampler = OfflineSampler(corpus, texts_of, images_of, OfflineSettings(lists="x", single_draw=True))
    ones = np.full(5000, 399)
    drawn = sampler.draw(ones, ones, np.random.default_rng(0))
    assert ((drawn.texts[:, 0] - 60) // 5 == drawn.images[:, 0]).all()
    independent = OfflineSampler(corpus, texts_of, images_of, OfflineSettings(lists="x"))
    drawn = independent.draw(ones, ones, np.random.default_rng(0))
    assert ((drawn.texts[:, 0] - 60) // 5 == drawn.images[:, 0]).mean() < 0.1


def test_the_pairs_do_not_depend_on_whether_there_are_offline_negatives():
    plain = PairSampler(FOUR, 3, (7,)).epoch(2)
    offline = PairSampler(FOUR, 3, (7,), [OfflineSampler(FOUR, *lists_of(FOUR, 5), OfflineSettings(lists="x"))]).epoch(
        2
    )
    assert [batch.texts.tolist() for batch in plain] == [batch.texts.tolist() for batch in offline]


class Unreadable(FeatureReader):
    """Features of which one image cannot be read."""

    def __init__(self, features, image):
        super().__init__(features, np.array([i for i in range(len(features)) if i != image]), {image: "broken"})
        self._features = features.take(np.array([i for i in range(len(features)) if i != image]))


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("unreadable", [None, 2])
def test_each_image_and_text_is_read_once_and_found_by_its_row(workers, unreadable):
    vocabulary = Vocabulary.from_texts(FOUR.texts, 1)
    table = vocabulary.encode_all(FOUR.texts)
    features = FOUR.features
    images = FeatureReader(features) if unreadable is None else Unreadable(features, unreadable)
    sampler = PairSampler(FOUR, 3, (7,), [OfflineSampler(FOUR, *lists_of(FOUR, 5), OfflineSettings(lists="x"))])
    reader = PairReader(FOUR.text_groups, images, table)
    drawn = sampler.epoch(1)
    for pairs, batch in zip(drawn, read_ahead(reader.read, drawn, workers), strict=True):
        kept = np.ones(len(pairs.texts), bool)
        if unreadable is not None:
            kept = pairs.images != unreadable
        offline = pairs.extras[OfflineNegatives].take(kept)
        whole = (offline.images != unreadable).all(1) if unreadable is not None else offline.is_drawn
        images, texts = pairs.images[kept], pairs.texts[kept]
        if unreadable is not None:
            readable = np.array([image for image in range(len(features)) if image != unreadable])
            offline = offline.without_unreadable(readable, Pairs(images, texts, ()))
        assert (offline.images[~whole] == images[~whole, None]).all()
        assert not offline.is_negative[~whole].any()
        numbers = batch.images[:, 0]  # an image's feature is its number
        assert len(set(numbers)) == len(numbers)
        assert numbers[batch.image_of].tolist() == pairs.images[kept].tolist()
        assert numbers[batch.extras[OfflineNegatives].images].tolist() == offline.images.tolist()
        assert batch.extras[OfflineNegatives].is_drawn.tolist() == offline.is_drawn.tolist()
        assert batch.image_of.max(initial=-1) < len(np.unique(pairs.images))  # the pairs' own come first
        every = table.batch(pairs.texts[kept])[0]
        assert len(batch) == kept.sum()
        assert batch.ids[: len(batch), : every.shape[1]].tolist() == every.tolist()
        rows = [tuple(row) for row in batch.ids.tolist()]
        assert len(set(rows)) == len(rows)
        for place, text in zip(batch.extras[OfflineNegatives].texts.ravel(), offline.texts.ravel(), strict=True):
            ids, lengths = table.batch(np.array([text]))
            assert batch.lengths[place] == lengths[0]
            assert batch.ids[place, : lengths[0]].tolist() == ids[0, : lengths[0]].tolist()


def test_a_text_that_the_drawn_image_also_says_is_no_negative_of_it():
    corpus = corpus_of([0, 1, 2], [0, 1, 2])
    corpus = replace(corpus, texts=["a cat", "A dog.", "a dog ."])  # images 1 and 2 say the same
    lists = np.array([[1, 2], [0, -1], [0, -1]], np.int32), np.array([[2, -1], [0, -1], [0, -1]], np.int32)
    drawn = OfflineSampler(corpus, *lists, OfflineSettings(lists="x")).draw(
        np.zeros(50, np.int64), np.zeros(50, np.int64), np.random.default_rng(0)
    )
    assert set(drawn.texts[:, 0]) == {1, 2}  # image 2 with text 1: of another group, and right
    assert not drawn.is_negative.any()
