"""Long lists are encoded and scored in batches; what comes out does not depend on them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.images import DecodedPicture
from diptych.errors import DataError, ImageError
from diptych.models import encode
from diptych.models.encode import (
    CROPS_PER_BATCH,
    check_count,
    check_texts,
    encode_pictures,
    encode_texts,
    images_per_batch,
    score_blocks,
)
from diptych.models.engines.engine import Encodings
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.matchers.bfan import BFANSettings
from diptych.models.matchers.order import OrderSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.similarity_net import SimilarityNetSettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from support.pictures import BrokenPicture

VOCABULARY = Vocabulary.from_texts(["a dog and the man 's red ball on grass"], 1)
TEXTS = ["a dog", "the man on grass", "red", "a red ball and the dog", "zebra", ""]


class FakeEngine:
    """A photo is its first pixel and its size; records the size of each batch and the threads that read."""

    decode_size = None

    def __init__(self, sets=False):
        self.sets, self.batches, self.readers = sets, [], set()

    def preprocess(self, photo):
        self.readers.add(threading.current_thread())
        return np.array([*photo.getpixel((0, 0)), *photo.size], np.float32)

    def encode_preprocessed(self, prepared):
        self.batches.append(len(prepared))
        vectors = np.stack(prepared)
        sets = tuple(np.ones((int(row[0]) % 4, 5), np.float32) for row in vectors) if self.sets else None
        return Encodings(vectors, sets)


def pictures(count):
    return [DecodedPicture(Image.new("RGB", (5, 4), (number, 0, 1))) for number in range(count)]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(("batch_size", "batches"), [(None, [32, 8]), (7, [7] * 5 + [5]), (1, [1] * 40), (99, [40])])
def test_rows_keep_the_order_whatever_the_batches(workers, batch_size, batches):
    engine, seen = FakeEngine(), []
    found, skipped = encode_pictures(
        engine, pictures(40), batch_size=batch_size, workers=workers, progress=lambda *numbers: seen.append(numbers)
    )
    assert found[:, 0].tolist() == list(range(40))
    assert (skipped, engine.batches) == ({}, batches)
    assert seen == [(done, 40) for done in np.cumsum(batches).tolist()]
    assert (threading.current_thread() in engine.readers) == (workers == 0)


def test_pictures_that_cannot_be_read_are_skipped_and_nobody_moves_up():
    mixed = pictures(8)
    mixed[0] = mixed[3] = mixed[7] = BrokenPicture()
    seen = []
    found, skipped = encode_pictures(
        FakeEngine(), mixed, errors="skip", batch_size=2, progress=lambda *numbers: seen.append(numbers)
    )
    assert found[:, 0].tolist() == [1, 2, 4, 5, 6]
    assert skipped == dict.fromkeys((0, 3, 7), "broken.jpg: truncated")
    assert seen[-1] == (8, 8)
    for workers in (0, 2):
        with pytest.raises(ImageError, match=r"broken\.jpg: truncated"):
            encode_pictures(FakeEngine(), mixed, workers=workers)


def test_sets_of_all_batches_have_the_places_of_the_largest():
    found, _ = encode_pictures(FakeEngine(sets=True), pictures(6), batch_size=2)
    assert found.shape == (6, 3, 5)
    assert found.any(2).sum(1).tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("broken", [0, 2])
def test_without_a_readable_picture_there_are_no_rows(broken):
    found, skipped = encode_pictures(FakeEngine(), [BrokenPicture()] * broken, errors="skip")
    assert (found.shape, found.dtype, len(skipped)) == ((0, 5), np.float32, broken)
    assert encode_pictures(FakeEngine(sets=True), [])[0].ndim == 3


def test_a_batch_holds_a_number_of_crops():
    assert images_per_batch(np.zeros((3, 8, 8))) == CROPS_PER_BATCH
    assert images_per_batch(np.zeros((10, 3, 8, 8))) == CROPS_PER_BATCH // 10
    assert images_per_batch(np.zeros((99, 3, 8, 8))) == 1
    assert images_per_batch(np.zeros((36, 512))) == CROPS_PER_BATCH


def test_wrong_options_are_named():
    for options, reason in (
        ({"batch_size": 0}, r"batch_size=0: not a whole number of at least 1"),
        ({"batch_size": 2.5}, r"batch_size=2\.5: not a whole number"),
        ({"batch_size": True}, r"batch_size=True: not a whole number"),
        ({"workers": -1}, r"workers=-1: not a whole number of at least 0"),
        ({"errors": "ignore"}, r"errors='ignore': not one of 'raise', 'skip'"),
    ):
        with pytest.raises(DataError, match=reason):
            encode_pictures(FakeEngine(), pictures(1), **options)
    with pytest.raises(DataError, match="batch_size=0"):
        encode_texts(FakeEngine(), ["a"], batch_size=0)
    check_count("batch_size", np.int64(3), 1)


def test_texts_are_a_list_of_strings():
    assert check_texts(text for text in ("a", "b")) == ["a", "b"]
    for wrong, reason in (
        ("a dog", r"texts: one string, not a list; pass \[text\]"),
        (None, "texts: None is not a list of strings"),
        (["a", None], r"texts\[1\]: None is not a string"),
        ([b"a"], r"texts\[0\]: b'a' is not a string"),
        ([["a"]], r"texts\[0\]: \['a'\] is not a string"),
    ):
        with pytest.raises(DataError, match=reason):
            check_texts(wrong)
    with pytest.raises(DataError, match=r"phrases: one string, not a list; pass \[phrase\]"):
        check_texts("a dog", "phrases")


WHOLE = {"image": FeatureSettings(shape=(4,)), "text": GRUSettings(hidden=6, word=5), "words": len(VOCABULARY)}
REGIONS = {"joint": 6, "image": RegionFeatureSettings(shape=(3, 4)), "words": len(VOCABULARY)}
LAYERS = {"image_layers": (6,), "text_layers": (6,)}
MODELS = {
    "vse": VSESettings(joint=6, **WHOLE),
    "order": OrderSettings(joint=6, **WHOLE),
    "two_branch": TwoBranchSettings(**LAYERS, **WHOLE),
    "similarity_net": SimilarityNetSettings(fused=(4,), **LAYERS, **WHOLE),
    "scan": SCANSettings(**REGIONS),
    "bfan": BFANSettings(**REGIONS),
}


def built(name):
    torch.manual_seed(0)
    return TorchEngine(MODELS[name].build().eval(), VOCABULARY, torch.device("cpu"))


def some_images(engine, count):
    """The embeddings of features, or of sets of regions of which the last images have fewer."""
    shape = engine.matcher.image_input.shape
    features = np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)
    if len(shape) == 2:
        features[-2:, 2:] = 0
    return encode.to_array(engine.encode_preprocessed(list(features)))


@pytest.mark.parametrize("name", list(MODELS))
@torch.inference_mode()
def test_every_score_in_blocks_is_that_of_the_matcher(name, monkeypatch):
    engine = built(name)
    images, texts = some_images(engine, 7), encode_texts(engine, TEXTS)
    wanted = engine.matcher.score(torch.from_numpy(images), torch.from_numpy(texts)).numpy()
    assert np.ptp(wanted) > 1e-3
    for rows, columns in ((512, 2560), (3, 2), (1, 1), (7, 6)):
        monkeypatch.setattr(encode, "IMAGES_PER_BLOCK", rows)
        monkeypatch.setattr(encode, "TEXTS_PER_BLOCK", columns)
        found = score_blocks(engine, images, texts)
        assert (found.shape, found.dtype) == ((7, 6), np.float32)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert score_blocks(engine, images[:0], texts).shape == (0, 6)
    assert score_blocks(engine, images, texts[:0]).shape == (7, 0)


def test_blocks_bound_what_is_scored_at_once(monkeypatch):
    sizes = []

    class Engine:
        def score(self, images, texts):
            sizes.append((len(images), len(texts)))
            return images.vectors @ texts.vectors.T

    monkeypatch.setattr(encode, "IMAGES_PER_BLOCK", 4)
    monkeypatch.setattr(encode, "TEXTS_PER_BLOCK", 10)
    random = np.random.default_rng(0)
    images, texts = random.normal(size=(9, 3)).astype(np.float32), random.normal(size=(11, 3)).astype(np.float32)
    np.testing.assert_allclose(score_blocks(Engine(), images, texts), images @ texts.T, rtol=1e-5, atol=1e-6)
    assert sizes == [(3, 5)] * 3 + [(3, 6)] * 3  # nearly equal parts, not 4 + 4 + 1


@pytest.mark.parametrize("name", ["vse", "scan"])
def test_texts_do_not_depend_on_the_batch_size(name):
    engine = built(name)
    alone = [encode_texts(engine, [text])[0] for text in TEXTS]
    seen = []
    for batch_size in (None, 1, 4):
        found = encode_texts(engine, TEXTS, batch_size=batch_size, progress=lambda *numbers: seen.append(numbers))
        for row, wanted in zip(found, alone, strict=True):
            np.testing.assert_allclose(row[: len(wanted)], wanted, atol=1e-6)
            if name == "scan":
                assert not row[len(wanted) :].any()
    assert seen == [(6, 6), *((done, 6) for done in range(1, 7)), (4, 6), (6, 6)]
    assert encode_texts(engine, []).shape[-1] == 6
    assert len(encode_texts(engine, [])) == 0
