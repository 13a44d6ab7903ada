"""Every row of a batch belongs to one rank."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.sampling.share import Share, Split, rows_among, texts_by_image, texts_by_words
from diptych.ranks import Ranks

counts = st.integers(1, 5)
sizes = st.integers(0, 12)


def assert_parted(parts, rows):
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2


@given(counts, sizes, sizes)
def test_images_are_shared_equally_those_of_pairs_first(count, of_pairs, others):
    parts = Split(of_pairs, of_pairs + others).by_position(Ranks(0, count))
    assert_parted(parts, of_pairs + others)
    assert all((np.diff(part) > 0).all() for part in parts)


@given(counts, sizes, sizes, st.integers(0, 9))
def test_texts_of_a_rank_begin_alike(count, of_pairs, others, seed):
    random = np.random.default_rng(seed)
    texts = of_pairs + others
    ids, lengths = random.integers(1, 4, (texts, 4)), random.integers(1, 5, texts)
    ids[np.arange(4) >= lengths[:, None]] = 0
    parts = texts_by_words(Split(of_pairs, texts), ids, lengths, Ranks(0, count))
    assert sorted(np.concatenate(parts).tolist()) == list(range(texts))
    rows = [sorted(map(tuple, ids[part].tolist())) for part in parts if len(part)]
    assert all(before[-1] <= after[0] for before, after in pairwise(rows))
    for part in parts:
        assert (np.diff(part >= of_pairs) >= 0).all(), "those of pairs come first"


@given(st.integers(2, 5), st.integers(20, 60), st.integers(0, 99))
def test_texts_are_shared_by_the_number_of_their_prefixes(count, texts, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 9, texts)
    ids = random.integers(1, 3, (texts, 8))
    ids[np.arange(8) >= lengths[:, None]] = 0
    prefixes = [
        prefixes_of(ids[part], lengths[part])
        for part in texts_by_words(Split(texts, texts), ids, lengths, Ranks(0, count))
    ]
    # A cut falls between two texts, of at most 8 words, and the first text of a part repeats what it shares.
    assert max(prefixes) - min(prefixes) <= 2 * 8 + texts / count


def prefixes_of(ids, lengths):
    """How many distinct prefixes some texts have."""
    return len(
        {tuple(row[:end]) for row, length in zip(ids.tolist(), lengths, strict=True) for end in range(1, length + 1)}
    )


def test_a_rank_with_new_words_gets_fewer_texts():
    ids = np.array([[1, 1, 1, number] for number in range(1, 10)] + [[number] * 4 for number in range(2, 6)])
    parts = texts_by_words(Split(13, 13), ids, np.full(13, 4), Ranks(0, 2))
    assert [len(part) for part in parts] == [9, 4]


@given(st.integers(1, 4), st.lists(st.integers(0, 6), max_size=12), sizes)
def test_texts_follow_their_images(count, image_of, others):
    ranks = Ranks(0, count)
    images = Split(7, 7).by_position(ranks)
    split = Split(len(image_of), len(image_of) + others)
    parts = texts_by_image(split, np.array(image_of, np.int64), images, ranks)
    assert sorted(np.concatenate(parts).tolist()) == list(range(split.all))
    for own, texts in zip(images, parts, strict=True):
        assert set(np.array(image_of, np.int64)[texts[texts < split.of_pairs]]) <= set(own.tolist())


@given(st.permutations(range(9)), st.integers(1, 8))
def test_the_order_of_the_batch_is_restored(order, cut):
    rows = np.array(order)
    share = Share(Ranks(1, 2), (0,), (rows[:cut], rows[cut:]), (rows[cut:], rows[:cut]), 0)
    assert np.concatenate(share.image_rows)[share.image_order].tolist() == list(range(9))
    assert np.concatenate(share.text_rows)[share.text_order].tolist() == list(range(9))
    assert share.own_images.tolist() == rows[cut:].tolist()
    assert rows[rows_among(rows, np.array([3, 0]))].tolist() == [3, 0]
