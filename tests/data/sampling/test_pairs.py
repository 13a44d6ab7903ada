import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Corpus, Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.sampling.pairs import PairReader, Pairs, PairSampler, Rivals, read_ahead
from diptych.errors import ImageError
from diptych.features.readers import FeatureReader, PixelReader
from diptych.text.vocabulary import TokenTable, Vocabulary


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


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


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_never_change_the_order(workers):
    def slow_for_even(number):
        time.sleep(0.002 * (number % 2 == 0))
        return number * number

    assert list(read_ahead(slow_for_even, range(30), workers)) == [n * n for n in range(30)]


def test_reading_ahead_is_bounded_and_stops_with_its_reader():
    started = []
    lock = threading.Lock()

    def read(number):
        with lock:
            started.append(number)
        return number

    ahead = read_ahead(read, range(1000), 2)
    assert next(ahead) == 0
    ahead.close()
    assert len(started) < 20


def test_an_unreadable_image_leaves_its_pairs_out_and_moves_nobody():
    corpus = make_scenes(train=6, val=1, test=1, texts=2).split("train")
    whole = [np.asarray(picture.load()) for picture in corpus.pictures]
    pictures = list(corpus.pictures)
    pictures[2] = Broken()
    reader = PixelReader(pictures, 128)
    table = Vocabulary.from_texts(corpus.texts, 1).encode_all(corpus.texts)
    order = np.array([2, 5, 0, 5, 3])
    texts = np.array([4, 10, 1, 11, 6])
    batch = PairReader(corpus.text_groups, reader, table).read(Pairs(order, texts, ()))
    assert reader.skipped == {2: "broken.jpg: truncated"}
    assert batch.groups.tolist() == corpus.text_groups[[10, 1, 11, 6]].tolist()
    for pair, image in enumerate([5, 0, 5, 3]):
        shown = batch.images[batch.image_of[pair]].transpose(1, 2, 0)
        assert (shown == whole[image]).all()
    assert len(batch.images) == 3  # each distinct image once
    again, readable = reader.read(np.array([2, 3]))  # from what was kept
    assert readable.tolist() == [False, True]
    assert (again[0].transpose(1, 2, 0) == whole[3]).all()


@given(groups, groups, st.integers(2, 9), st.integers(1, 4), st.booleans())
def test_rival_texts_are_of_the_batch_and_of_other_groups(image_groups, text_groups, size, rivals, neighbours):
    corpus = corpus_of(image_groups, text_groups)
    sampler = PairSampler(corpus, size, (3,), rivals=rivals, neighbours=neighbours)
    for again, pairs in zip(sampler.epoch(1), sampler.epoch(1), strict=True):
        drawn = pairs.rivals.texts
        assert pairs.rivals.images is None
        assert drawn.shape == (len(pairs.texts), rivals)
        np.testing.assert_array_equal(drawn, again.rivals.texts)
        assert set(drawn[drawn >= 0].tolist()) <= set(pairs.texts.tolist())
        own = corpus.text_groups[pairs.texts]
        assert (corpus.text_groups[drawn] != own[:, None])[drawn >= 0].all()
        if len(set(own.tolist())) == 1:
            assert (drawn == -1).all()
        elif (
            len(own) and np.bincount(own).max() <= len(own) / 2
        ):  # missing twenty times is then less than one in a million
            assert (drawn >= 0).all()


def test_every_text_of_another_group_may_be_a_rival():
    corpus = corpus_of([0, 1, 2], [0, 0, 1, 2, 2])
    rivals = {text: set() for text in range(5)}
    for epoch in range(60):
        (pairs,) = PairSampler(corpus, 5, (0,), rivals=1).epoch(epoch)
        for text, (rival,) in zip(pairs.texts.tolist(), pairs.rivals.texts.tolist(), strict=True):
            rivals[text].add(rival)
    assert rivals == {0: {2, 3, 4}, 1: {2, 3, 4}, 2: {0, 1, 3, 4}, 3: {0, 1, 2}, 4: {0, 1, 2}}


class Rows:
    """What a fitted tower made of each text: a row that says whose it is."""

    def __getitem__(self, texts):
        return np.stack([texts, 10 * texts], axis=1).astype(np.float32)


TEXTS = 9
numbered = st.integers(0, TEXTS - 1)


def numbered_reader(missing):
    """Images and texts that say their number; text j has j + 1 words, all of them j."""
    readable = np.array([image for image in range(8) if image not in missing], np.int64)
    reader = FeatureReader(Features([readable[:, None].astype(np.float32)]), readable, dict.fromkeys(missing, "broken"))
    flat = np.concatenate([np.full(text + 1, text) for text in range(TEXTS)]).astype(np.int32)
    table = TokenTable(flat, np.cumsum([0, *range(1, TEXTS + 1)]))
    return PairReader(100 + np.arange(TEXTS) % 4, reader, table, Rows())


@given(
    st.lists(st.tuples(st.integers(0, 7), numbered), min_size=1, max_size=10),
    st.sets(st.integers(0, 7), max_size=5),
    st.integers(0, 99),
    st.sampled_from(["both", "images", "texts", "none"]),
)
def test_a_batch_says_the_same_as_its_numbers(drawn, missing, seed, kinds):
    """Texts in several pairs, rivals of both kinds, some of which lack, and images that cannot be read."""
    random = np.random.default_rng(seed)
    images, texts = np.array(drawn).T
    rivals = Rivals(
        random.integers(-1, 8, (len(images), 3)) if kinds in ("both", "images") else None,
        random.integers(-1, TEXTS, (len(images), 2)) if kinds in ("both", "texts") else None,
    )
    asking = random.random((len(images), 2)) < 0.5
    given_pairs = Pairs(images, texts, (), rivals=None if kinds == "none" else rivals, asking=asking)
    batch = numbered_reader(missing).read(given_pairs)
    kept = [pair for pair, image in enumerate(images.tolist()) if image not in missing]
    asked = {*images.tolist(), *(() if rivals.images is None else rivals.images[rivals.images >= 0].tolist())}
    assert set(batch.skipped) == asked & missing
    assert len(batch) == len(kept)
    shown, said = batch.images[:, 0].astype(int).tolist(), batch.ids[:, :1].ravel().tolist()
    assert len(set(shown)) == len(shown)
    assert len(set(said)) == len(said)
    text_of = np.arange(len(batch)) if batch.text_of is None else batch.text_of
    for pair, row in enumerate(kept):
        assert shown[batch.image_of[pair]] == images[row]
        assert said[text_of[pair]] == texts[row]
        assert batch.groups[pair] == 100 + texts[row] % 4
        assert batch.asking[pair].tolist() == asking[row].tolist()
        if rivals.images is not None:
            found = [-1 if rival < 0 else shown[rival] for rival in batch.rivals.images[pair].tolist()]
            assert found == [-1 if rival in missing else rival for rival in rivals.images[row].tolist()]
        if rivals.texts is not None:
            found = [-1 if rival < 0 else said[rival] for rival in batch.rivals.texts[pair].tolist()]
            assert found == rivals.texts[row].tolist()
    # The texts of the pairs come first, in the order of the pairs; then what only rivals need.
    own = list(dict.fromkeys(texts[kept].tolist()))
    assert said[: len(own)] == own
    assert (batch.text_of is None) == (len(own) == len(kept))
    assert set(shown[: len(set(images[kept].tolist()))]) == set(images[kept].tolist())
    assert batch.lengths.tolist() == [text + 1 for text in said]
    assert batch.text_features.tolist() == [[text, 10 * text] for text in said]
    if kinds == "none":
        assert batch.rivals is None
        assert (len(said), len(shown)) == (len(own), len(set(images[kept].tolist())))
