"""What a corpus lacks is named."""

from dataclasses import replace

import numpy as np
import pytest

from diptych.data.formats.scenes import make_scenes
from diptych.reproduction.needs import CorpusNeeds

PLAIN = make_scenes(train=4, val=2, test=2, texts=1)


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        ("texts", "no image of train has several texts"),
        ("identities", "no identity of train has several images"),
        ("vectors", "it needs word vectors; name their file with --vectors"),
    ],
)
def test_a_corpus_that_lacks_something(need, reason, tmp_path):
    assert list(CorpusNeeds(PLAIN, None).unmet((need,))) == [reason]
    rich = make_scenes(train=4, val=2, test=2, texts=2, images=2)
    assert not list(CorpusNeeds(rich, tmp_path).unmet((need,)))


def test_a_corpus_without_a_split_or_boxes():
    splits = np.where(PLAIN.image_splits == "val", "test", PLAIN.image_splits)
    texts = np.where(PLAIN.text_splits == "val", "test", PLAIN.text_splits)
    without = replace(PLAIN, image_splits=splits, text_splits=texts)
    assert list(CorpusNeeds(without, None).unmet(("test", "val"))) == [
        "the corpus has no split val (images: train 4, test 4)"
    ]
    boxless = replace(PLAIN, boxes=None)
    assert list(CorpusNeeds(boxless, None).unmet(("boxes",))) == [
        "the corpus has no phrases with boxes in its split train"
    ]
    assert not list(CorpusNeeds(PLAIN, None).unmet(("val", "test", "boxes")))
