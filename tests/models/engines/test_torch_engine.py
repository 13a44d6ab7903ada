from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.formats.scenes import make_scenes
from diptych.errors import DataError, ImageError
from diptych.features.crops import Crops, fixed_crops
from diptych.features.image_input import ImageInput
from diptych.features.regions import Regions
from diptych.models.engines.torch_engine import TorchEngine
from diptych.models.matchers.vse import VSESettings
from diptych.models.text_inputs import TextInputs
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.models.towers.text.sentence import SentenceSettings
from diptych.text.vocabulary import Vocabulary
from support.ranks import on_threads


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


@pytest.fixture(scope="module")
def corpus():
    return make_scenes(train=2, val=2, test=10, texts=3).split("test")


@pytest.fixture(scope="module")
def engine(corpus):
    vocabulary = Vocabulary.from_texts(corpus.texts, 1)
    torch.manual_seed(0)
    image = CNNSettings(pixels=32, width=2)
    matcher = (
        VSESettings(joint=8, text=GRUSettings(hidden=8, word=4), image=image, words=len(vocabulary)).build().eval()
    )
    return TorchEngine(matcher, vocabulary, torch.device("cpu"))


def test_ranks_take_turns_with_the_batches_and_each_keeps_what_it_needs(engine, corpus, monkeypatch):
    monkeypatch.setattr("diptych.models.engines.torch_engine.TEXTS_AT_ONCE", 3)
    monkeypatch.setattr("diptych.models.engines.torch_engine.IMAGES_AT_ONCE", 3)
    whole = engine.text_tensor(corpus.texts)
    images = engine.encode_corpus(corpus).images
    for count in (2, 3):
        kept = [slice(0, 5), slice(5, None), slice(1, 1)]

        def work(ranks, kept=kept):
            encoded = engine.encode_corpus(corpus, 0, ranks=ranks)
            return engine.text_tensor(corpus.texts, ranks=ranks, keep=kept[ranks.rank]), encoded

        for rank, (texts, encoded) in enumerate(on_threads(count, work)):
            assert torch.equal(texts, whole[kept[rank]])
            assert torch.equal(encoded.images, images)
            assert torch.equal(encoded.texts, engine.encode_corpus(corpus).texts)


@pytest.mark.parametrize("broken", [(), (0, 4, 9)])
def test_ranks_keep_shares_of_the_encodings(engine, corpus, monkeypatch, broken):
    monkeypatch.setattr("diptych.models.engines.torch_engine.IMAGES_AT_ONCE", 3)
    monkeypatch.setattr("diptych.models.engines.torch_engine.TEXTS_AT_ONCE", 4)
    pictures = [Broken() if row in broken else picture for row, picture in enumerate(corpus.pictures)]
    some = replace(corpus, pictures=pictures)
    expected = engine.encode_corpus(some, 0)

    def work(ranks):
        spread = engine.encode_spread(some, 0, ranks=ranks)
        held = len(spread.images._own), len(spread.texts._own)
        return held, spread, spread.on_first(), expected.spread(ranks).on_first()

    found = on_threads(3, work)
    assert sum(images for (images, _), *_ in found) == 10 - len(broken)
    assert sum(texts for (_, texts), *_ in found) == len(expected.texts) == 3 * (10 - len(broken))
    assert max(held[1] for held, *_ in found) == -(-len(expected.texts) // 3)
    for _, spread, *gathered in found:
        assert spread.skipped == expected.skipped
        assert spread.digest == expected.digest
        for each in gathered:
            is_first = each is found[0][2] or each is found[0][3]
            for side in ("images", "texts"):
                rows = getattr(expected, side)
                assert torch.equal(getattr(each, side), rows if is_first else rows[:0])


def test_texts_keep_their_order_whatever_the_chunks(engine, corpus, monkeypatch):
    whole = engine.text_tensor(corpus.texts)
    one_by_one = torch.cat([engine.text_tensor([text]) for text in corpus.texts])
    torch.testing.assert_close(whole, one_by_one)
    monkeypatch.setattr("diptych.models.engines.torch_engine.TEXTS_AT_ONCE", 4)
    torch.testing.assert_close(engine.text_tensor(corpus.texts), whole)


def test_inputs_that_are_known_replace_tokenising(engine, corpus):
    expected = engine.encode_corpus(corpus, 0)
    inputs = TextInputs(engine.tokeniser.encode_all(corpus.texts))
    untokenised = replace(engine, tokeniser=None)
    torch.testing.assert_close(untokenised.encode_corpus(corpus, 0, texts=inputs).texts, expected.texts)
    pictures = [Broken() if row in (0, 4) else picture for row, picture in enumerate(corpus.pictures)]
    some = replace(corpus, pictures=pictures)
    torch.testing.assert_close(
        untokenised.encode_corpus(some, 0, texts=inputs).texts, engine.encode_corpus(some, 0).texts
    )


def test_features_that_are_known_replace_the_encoder(corpus, monkeypatch):
    settings = VSESettings(joint=512, text=SentenceSettings(hidden=0), image=CNNSettings(pixels=16, width=1))
    matcher, tokeniser = settings.build().eval(), settings.tokeniser()
    engine = TorchEngine(matcher, tokeniser, torch.device("cpu"))
    expected = engine.text_tensor(corpus.texts)
    inputs = TextInputs(tokeniser.encode_all(corpus.texts), expected.numpy())
    monkeypatch.setattr(matcher.text.encoder, "forward", None)
    torch.testing.assert_close(engine.text_tensor(corpus.texts, inputs=inputs), expected)


@pytest.mark.parametrize("workers", [0, 3])
def test_unreadable_images_are_left_out_with_their_texts(engine, corpus, workers, monkeypatch):
    monkeypatch.setattr("diptych.models.engines.torch_engine.IMAGES_AT_ONCE", 3)
    whole = engine.encode_corpus(corpus, workers)
    pictures = [Broken() if row in (0, 4) else picture for row, picture in enumerate(corpus.pictures)]
    encoded = engine.encode_corpus(replace(corpus, pictures=pictures), workers)
    kept = [row for row in range(10) if row not in (0, 4)]
    assert encoded.corpus.image_ids == [corpus.image_ids[row] for row in kept]
    assert set(encoded.skipped) == {corpus.image_ids[0], corpus.image_ids[4]}
    torch.testing.assert_close(encoded.images, whole.images[kept])
    texts = [j for j in range(30) if corpus.text_groups[j] not in corpus.image_groups[[0, 4]]]
    assert encoded.corpus.texts == [corpus.texts[j] for j in texts]
    torch.testing.assert_close(encoded.texts, whole.texts[texts])
    assert encoded.image_groups.tolist() == corpus.image_groups[kept].tolist()


def test_an_image_may_go_while_its_group_stays(engine):
    corpus = make_scenes(train=1, val=1, test=3, images=2, texts=1).split("test")
    pictures = [Broken(), *corpus.pictures[1:]]
    encoded = engine.encode_corpus(replace(corpus, pictures=pictures), 0)
    assert len(encoded.texts) == 3
    assert encoded.image_groups.tolist() == corpus.image_groups[1:].tolist()


def test_nothing_readable_is_an_error(engine, corpus):
    with pytest.raises(DataError, match=r"no image of test could be read; first reason: broken\.jpg"):
        engine.encode_corpus(replace(corpus, pictures=[Broken()] * 10))


def test_watching(engine, corpus):
    seen = []
    engine.encode_corpus(corpus, 0, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_corpus_without_pictures_is_named(engine, corpus):
    with pytest.raises(DataError, match="no pictures"):
        engine.encode_corpus(replace(corpus, pictures=None))
    assert len(np.unique(corpus.text_groups)) == 10


@pytest.mark.parametrize(
    ("name", "regions", "used", "quality"),
    [
        ("views", None, "scales", "fast"),
        ("views", Regions(method="crops"), "views", "best"),  # one vector per crop: none can be left out
        ("mirrored", None, "mirrored", "best"),
    ],
)
def test_the_fast_quality_reads_fewer_crops_if_they_are_averaged(name, regions, used, quality):
    image_input = ImageInput("crops", (3, 32, 32), Crops(name=name), regions)
    matcher = SimpleNamespace(image_input=image_input, pretrained=SimpleNamespace(normalised=True))
    engine = TorchEngine(matcher, None, torch.device("cpu"), wanted_quality="fast")
    photo = Image.new("RGB", (50, 40), "teal")
    np.testing.assert_array_equal(engine.preprocess(photo), fixed_crops(photo, Crops(name=used), 32))
    assert engine.quality == quality
    assert replace(engine, wanted_quality="best").preprocess(photo).shape == (Crops(name=name).count, 3, 32, 32)
