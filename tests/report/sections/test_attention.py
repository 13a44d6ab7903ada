from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from diptych.data.corpus import Corpus, Features
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.bfan import BFANSettings
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.report.sections.attention import attention_section, illuminate, word_attention
from diptych.text.vocabulary import Vocabulary

WORDS = Vocabulary(("left", "right"), (1, 1), 1)
TOWER = RegionFeatureSettings(shape=(3, 4))
LEFT, RIGHT, NOWHERE = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0)
MODELS = {
    "t2i": SCANSettings(joint=4, image=TOWER, words=9),
    "i2t": SCANSettings(joint=4, image=TOWER, words=9, direction="i2t"),
    "bfan": BFANSettings(joint=4, image=TOWER, words=9),
}


class Grey:
    def load(self) -> Image.Image:
        return Image.new("RGB", (200, 100), "#c0c0c0")


def encodings(settings, pictures=True, boxes=((LEFT, RIGHT, NOWHERE),) * 2) -> EncodedCorpus:
    """Two images whose third region is missing, and texts of which the second of each scores highest."""
    images = torch.zeros(2, 3, 4)
    images[0, 0], images[0, 1], images[1, 0], images[1, 1] = torch.eye(4)
    near = normalize(torch.tensor([0.1, 0.3, 0.05, 0.02]), dim=0)
    texts = torch.zeros(4, 5, 4)
    texts[:, :4] = near
    texts[1, 1], texts[1, 2] = torch.eye(4)[0], torch.eye(4)[1]  # the first word is the left region, then the right
    texts[3, 1], texts[3, 2] = torch.eye(4)[3], torch.eye(4)[2]
    captions = ["a b", "left right", "c d", "<i> left"]
    splits = np.full(2, "test"), np.full(4, "test")
    corpus = Corpus(
        "c",
        ["one.jpg", "two.jpg"],
        np.arange(2),
        splits[0],
        captions,
        np.arange(4) // 2,
        splits[1],
        pictures=[Grey(), Grey()] if pictures else None,
        features=Features([np.ones((2, 3, 4), np.float32)]),
        region_boxes=None if boxes is None else Features([np.array(boxes, np.float32)]),
    )
    return EncodedCorpus.from_matcher(settings.build(), corpus, images, texts, {})


def halves(uri: str) -> tuple[float, float]:
    """How bright the left and the right half of a picture are."""
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("L"), float)
    assert pixels.shape == (64, 128)
    return pixels[:, :50].mean(), pixels[:, 78:].mean()


@pytest.mark.parametrize("name", MODELS)
def test_each_word_lights_the_region_it_attends_to(name):
    section = attention_section(encodings(MODELS[name]), [1, 0], WORDS)
    assert [photo.name for photo in section.photos] == ["two.jpg", "one.jpg"]
    second, first = section.photos
    assert [word.text for word in first.words] == ["left", "right"]  # the caption that scores highest
    assert [word.text for word in second.words][-1] == "left"
    left, right = (halves(word.picture) for word in first.words)
    assert left[0] > 1.5 * left[1]
    assert right[1] > 1.5 * right[0]
    assert halves(first.picture)[0] == pytest.approx(192, abs=2)
    assert ("beside the word" in section.note) == (name != "i2t")
    assert all((word.cosine is None) == (name == "i2t") for word in first.words)


def test_pieces_of_words_have_their_own_pictures():
    class Halves(Vocabulary):
        def tokens(self, text):
            return ["<start>", *(half for word in text.split() for half in (word[:2], word[2:])), "<end>"]

    made = encodings(MODELS["t2i"])
    first = attention_section(made, [0], Halves(("left",), (1,), 1)).photos[0]
    assert [word.text for word in first.words] == ["le", "ft", "ri", "ght"]


def test_weights_come_from_the_model_and_cosines_from_the_attended_regions():
    made = encodings(MODELS["t2i"])
    matcher, image, text = made.matcher(), made.images[0], made.texts[1]
    weights, cosines = word_attention(matcher, image, text)
    assert weights == pytest.approx(matcher.attention(image, text).numpy())
    attended = weights[1] @ image.numpy()
    assert cosines[1] == pytest.approx(attended @ text[1].numpy() / np.linalg.norm(attended))
    other = encodings(MODELS["i2t"]).matcher()
    turned, none = word_attention(other, image, text)
    assert turned == pytest.approx(other.attention(image, text).numpy())
    assert none is None


def test_brightness_is_the_mean_weight_of_the_regions_over_a_pixel():
    photo = Image.new("RGB", (100, 50), "white")
    whole = (0.0, 0.0, 1.0, 1.0)
    same = np.asarray(illuminate(photo, np.array([whole, LEFT], np.float32), np.array([0.5, 0.5], np.float32)))
    assert (same == 255).all()  # lying in two regions is no merit
    half = np.asarray(illuminate(photo, np.array([LEFT], np.float32), np.array([1.0], np.float32)))[25]
    assert half[10, 0] == 255
    assert half[90, 0] < 80  # no region is there
    assert (np.diff(half[:, 0].astype(int)) <= 0).all()  # and they flow into each other
    dark = np.asarray(illuminate(photo, np.array([whole], np.float32), np.array([0.0], np.float32)))
    assert dark.max() < 80


def test_a_missing_section_is_explained_or_omitted():
    settings = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)
    scan = encodings(MODELS["t2i"])
    assert attention_section(replace(scan, settings=settings, encoded_by=settings.build()), [0], WORDS) is None
    assert attention_section(replace(scan, corpus=None), [0], WORDS) is None
    bare = attention_section(encodings(MODELS["t2i"], pictures=False), [0], WORDS)
    assert "no photos" in bare.note
    assert not bare.photos
    for boxes in (None, ((NOWHERE,) * 3,) * 2):
        unknown = attention_section(encodings(MODELS["t2i"], boxes=boxes), [0], WORDS)
        assert "no boxes for its regions" in unknown.note
        assert not unknown.photos
