import numpy as np
import pytest

from diptych.data.images import square_pixels
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.stream import StreamGroups, StreamPictures, StreamSampler, StreamTexts, StreamWindow
from diptych.data.shards.index import ShardInfo
from diptych.data.shards.stream import Stream
from diptych.errors import ImageError
from diptych.features.readers import PixelReader
from diptych.text.vocabulary import Vocabulary
from support.shards import write_shard


@pytest.fixture
def stream(tmp_path):
    files = [write_shard(tmp_path / f"{number}.tar", 25, 25 * number) for number in range(5)]
    return Stream([ShardInfo(str(file), {"train": 25}, 25, split="train") for file in files], ["train"])


@pytest.fixture
def sampler(stream):
    return StreamSampler(stream, StreamWindow(), 8, (0, 1), 20)


def numbers(batches):
    return [pairs.images.tolist() for pairs in batches]


def test_an_epoch_has_every_sample_once(sampler, stream):
    first = numbers(sampler.epoch(1))
    assert len(first) == len(sampler) == len(sampler.epoch(1)) == 16
    assert [len(batch) for batch in first] == [8] * 15 + [5]
    assert sorted(number for batch in first for number in batch) == list(range(125))
    assert first == numbers(sampler.epoch(1)) != numbers(sampler.epoch(2))
    pairs = next(sampler.epoch(3)[2:])
    assert pairs.draw == (0, 1, 3, 2)
    assert np.array_equal(pairs.images, pairs.texts)


@pytest.mark.parametrize("start", [0, 1, 7, 15, 16])
def test_an_epoch_begins_at_any_batch(sampler, start):
    assert numbers(sampler.epoch(1)[start:]) == numbers(sampler.epoch(1))[start:]


def test_a_single_sample_that_is_left_over_joins_the_last_batch(stream):
    sampler = StreamSampler(stream, StreamWindow(), 31, (0, 1), 20)
    assert [len(pairs.images) for pairs in sampler.epoch(1)] == [31, 31, 31, 32]


def test_memory_holds_the_buffer_and_the_batches_in_use(stream):
    window = StreamWindow()
    most = 0
    for pairs in StreamSampler(stream, window, 8, (0, 1), 20).epoch(1):
        assert len(pairs.items) >= 5
        most = max(most, len(window))
    assert 8 <= most <= 8 * 6  # this batch, and those that a thread has read ahead
    del pairs
    assert len(window) == 0


def test_a_batch_is_read_like_one_of_a_corpus(stream, tmp_path):
    window = StreamWindow()
    words = Vocabulary.from_texts(stream.texts(), 1)
    pictures = StreamPictures(window, len(stream))
    (tmp_path / "3.tar").unlink()
    reader = PairReader(StreamGroups(window), PixelReader(pictures, 8, keep=False), StreamTexts(window, words))
    seen = 0
    for pairs in StreamSampler(stream, window, 8, (0, 1), 20).epoch(1):
        batch = reader.read(pairs)
        readable = [number for number in pairs.images.tolist() if not 75 <= number < 100]
        assert sorted(batch.skipped) == sorted(set(pairs.images.tolist()) - set(readable))
        assert len(batch) == len(readable)
        for pair, number in enumerate(readable):
            assert batch.images[batch.image_of[pair]][0, 0, 0] == number % 256  # its own picture
            ids = batch.ids[batch.text_of[pair]][: batch.lengths[batch.text_of[pair]]]
            assert ids.tolist() == next(iter(words.encode_all([f"photo {number}"]).flat.reshape(1, -1))).tolist()
            assert batch.groups[pair] == -1 - number
        for number in batch.skipped:
            with pytest.raises(ImageError, match=r"3.tar: missing; all of its 25 samples are left out"):
                pictures[number].load()
        seen += len(batch)
    assert seen == 100


def test_pictures_are_decoded_from_their_bytes(stream):
    window = StreamWindow()
    pictures = StreamPictures(window, len(stream))
    assert len(pictures) == 125
    pairs = next(iter(StreamSampler(stream, window, 8, (0, 1), 20).epoch(1)))
    picture = pictures[int(pairs.images[0])]
    assert picture.load().size == (8, 8)
    assert square_pixels(picture, 4)[0, 0, 0] == pairs.images[0]
