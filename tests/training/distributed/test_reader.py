"""The shares of a batch, put together, are the batch that one process reads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.data.sampling.pairs import Pairs
from diptych.data.sampling.stream import StreamGroups, StreamPictures, StreamSampler, StreamTexts, StreamWindow
from diptych.data.shards.index import ShardInfo
from diptych.data.shards.stream import Stream
from diptych.features.readers import PixelReader
from diptych.text.vocabulary import Vocabulary
from diptych.training.distributed.agreement import Agreement
from diptych.training.distributed.reader import ShareReader
from support.numbered import numbered, numbered_reader
from support.ranks import on_threads
from support.shards import write_shard


def pairs_with_negatives(drawn, seed):
    images, texts = (np.array(side) for side in zip(*drawn, strict=True))
    random = np.random.default_rng(seed)
    negatives = DrawnNegatives(random.integers(-1, 8, (len(images), 2)), random.integers(-1, 9, (len(texts), 1)))
    return Pairs(images, texts, (0, 1, 1, 0)).with_extra(negatives)


def in_order(shares, rows, order):
    """The rows of all ranks in the order of the batch."""
    return np.concatenate([rows(batch) for batch in shares])[order]


def own_texts(batch):
    """What the texts of a share say, as their number and their length."""
    count = len(batch.share.own_texts)
    return np.stack([batch.ids[:count, :1].ravel(), batch.lengths[:count]], 1)


@given(
    st.lists(st.tuples(st.integers(0, 7), numbered), min_size=1, max_size=10),
    st.sets(st.integers(0, 7), max_size=5),
    st.integers(0, 99),
    st.booleans(),
)
def test_the_shares_are_the_batch(drawn, missing, seed, together):
    pairs = pairs_with_negatives(drawn, seed)
    whole = numbered_reader(missing).read(pairs)

    def work(ranks):
        reader = ShareReader(numbered_reader(missing), Agreement(ranks), together)
        return reader.settle(reader.read(pairs))

    for count in (2, 3):
        shares = on_threads(count, work)
        for batch in shares:
            assert batch.skipped == tuple(sorted(whole.skipped))
            assert len(batch) == len(whole)
            for name in ("image_of", "text_of", "groups"):
                assert np.array_equal(getattr(batch, name), getattr(whole, name))
            ours, theirs = batch.extras.get(DrawnNegatives), whole.extras.get(DrawnNegatives)
            assert np.array_equal(ours.images, theirs.images)
            assert np.array_equal(ours.texts, theirs.texts)
            assert len(batch.images) or not len(whole)
            assert len(batch.ids) or not len(whole)
        order = shares[0].share
        images = in_order(shares, lambda batch: batch.images[: len(batch.share.own_images)], order.image_order)
        assert np.array_equal(images, whole.images)
        texts = in_order(shares, own_texts, order.text_order)
        assert np.array_equal(texts, np.stack([whole.ids[:, :1].ravel(), whole.lengths], 1))
        features = in_order(shares, lambda batch: batch.text_features[: len(batch.share.own_texts)], order.text_order)
        assert np.array_equal(features, whole.text_features)
        assert sum(batch.share.own_pair_texts for batch in shares) == len(set(whole.text_of.tolist()))


@given(
    st.lists(st.tuples(st.integers(0, 7), numbered), min_size=1, max_size=10),
    st.sets(st.integers(0, 7), max_size=4),
    st.integers(0, 99),
    st.booleans(),
)
def test_the_shares_of_a_batch_with_fewer_negatives_are_that_batch(drawn, missing, seed, together):
    pairs = pairs_with_negatives(drawn, seed)
    read = numbered_reader(missing).read(pairs)
    if not len(read):
        return

    def fewer(batch):
        negatives = batch.extras[DrawnNegatives]
        return batch.with_extra(replace(negatives, images=negatives.images[:, :1]))

    def work(ranks):
        reader = ShareReader(numbered_reader(missing), Agreement(ranks), together)
        batch = reader.settle(reader.read(pairs))
        narrowed = fewer(batch)
        if together:  # the texts of pairs are still with their images
            own = [shared.images[: len(shared.share.own_images)][shared.share.image_of] for shared in (batch, narrowed)]
            assert np.array_equal(*own)
        return narrowed

    whole = fewer(read)
    for count in (2, 3):
        shares = on_threads(count, work)
        for batch in shares:
            assert len(batch.images)
            assert np.array_equal(batch.extras[DrawnNegatives].images, whole.extras[DrawnNegatives].images)
        share = shares[0].share
        images = in_order(shares, lambda batch: batch.images[: len(batch.share.own_images)], share.image_order)
        assert np.array_equal(images, whole.images)
        assert sorted(np.concatenate(share.image_rows).tolist()) == list(range(len(whole.images)))


@given(st.lists(st.tuples(st.integers(0, 7), numbered), min_size=1, max_size=10), st.sets(st.integers(0, 7)))
def test_a_text_is_where_its_image_is_if_the_model_reads_them_together(drawn, missing):
    pairs = pairs_with_negatives(drawn, 0)
    whole = numbered_reader(missing).read(pairs)

    def work(ranks):
        reader = ShareReader(numbered_reader(missing), Agreement(ranks), together=True)
        return reader.settle(reader.read(pairs))

    for batch in on_threads(2, work):
        share = batch.share
        assert len(share.image_of) == share.own_pair_texts
        for text, row in zip(share.own_texts[: share.own_pair_texts], share.image_of, strict=True):
            first = np.flatnonzero(whole.text_of == text)[0]
            assert share.own_images[row] == whole.image_of[first]


@pytest.mark.parametrize("together", [True, False])
def test_work_is_shared_equally(together):
    pairs = Pairs(np.arange(8), np.arange(8), (0, 1, 1, 0))

    def work(ranks):
        reader = ShareReader(numbered_reader(()), Agreement(ranks), together)
        return reader.settle(reader.read(pairs)).share

    for count, by_words in [(2, [5, 3]), (4, [3, 2, 1, 2])]:  # text j has j + 1 words
        shares = on_threads(count, work)
        assert [len(share.own_images) for share in shares] == [8 // count] * count
        assert [len(share.own_texts) for share in shares] == ([8 // count] * count if together else by_words)


def test_a_shard_that_one_rank_has_lost_is_left_out_by_all(tmp_path):
    vocabulary = Vocabulary.from_texts([f"photo {number}" for number in range(12)], 1)
    for rank in range(2):
        for number in range(3):
            write_shard(tmp_path / f"{rank}/{number}.tar", 4, 4 * number)
    (tmp_path / "0/2.tar").unlink()  # whose images, the last ones, belong to the other rank

    def work(ranks):
        infos = [ShardInfo(f"{tmp_path}/{ranks.rank}/{n}.tar", {"train": 4}, 4, split="train") for n in range(3)]
        stream, window = Stream(infos, ["train"]), StreamWindow()
        images = PixelReader(StreamPictures(window, 12), 4, keep=False)
        images.skipped = window.lost
        reader = PairReader(StreamGroups(window), images, StreamTexts(window, vocabulary))
        shares = ShareReader(reader, Agreement(ranks), together=False)
        return [shares.settle(shares.read(pairs)) for pairs in StreamSampler(stream, window, 6, (0, 1), 5).epoch(1)]

    batches = on_threads(2, work)
    assert sorted(number for batch in batches[0] for number in batch.skipped) == [8, 9, 10, 11]
    for first, second in zip(*batches, strict=True):
        assert first.skipped == second.skipped
        assert len(first) == len(second) == 6 - len(first.skipped)
        assert np.array_equal(first.groups, second.groups)
        assert len(first.share.own_texts) + len(second.share.own_texts) == len(first)
        assert len(first.share.own_images) + len(second.share.own_images) == len(first)
