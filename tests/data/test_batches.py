import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.batches import PairReader, Pairs, PairSampler, read_ahead
from diptych.data.corpus import Corpus, Features
from diptych.data.reader import FeatureReader, PixelReader
from diptych.data.scenes import make_scenes
from diptych.errors import ImageError
from diptych.text.vocabulary import Vocabulary


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
    table = Vocabulary.count(corpus.texts, 1).encode_all(corpus.texts)
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


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), max_size=7), st.lists(st.integers(0, 7)))
def test_stored_features_keep_their_image_whatever_is_missing(order, missing, asked):
    readable = np.array([image for image in order if image not in missing], np.int64)
    features = Features([readable[:, None].astype(np.float32)])  # a row says whose it is
    reader = FeatureReader(features, readable, dict.fromkeys(missing, "broken"))
    values, here = reader.read(np.array(asked, np.int64))
    assert here.tolist() == [image not in missing for image in asked]
    assert values[:, 0].tolist() == [image for image in asked if image not in missing]
