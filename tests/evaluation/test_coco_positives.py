from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.data.corpus import Corpus
from diptych.errors import DataError, DiptychError
from diptych.evaluation.coco_positives import coco_rows, read_positives
from diptych.evaluation.metrics.relevance import NOT_SEARCHED
from support.coco import FIRST_TEXT, Coco


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small stand-in for the package."""
    coco = Coco()
    coco.write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "eccv_caption"]:
        monkeypatch.delitem(sys.modules, name)
    yield coco
    sys.modules.pop("eccv_caption", None)


def lists_of(relevance, queries, answers):
    """The lists of a relevance by id; None is a positive that is not searched."""
    ids = np.array([*answers.tolist(), -1])
    parts = np.split(ids[relevance.positives], relevance.starts[1:])
    return {queries[row]: set(part.tolist()) for row, part in zip(relevance.queries, parts, strict=True)}


def test_the_lists_are_those_of_the_package_by_row(package):
    positives = read_positives()
    assert positives.image_ids.tolist() == package.images
    assert positives.text_ids.tolist() == package.texts
    assert positives.image_ids[positives.text_images].tolist() == [package.own[text] for text in package.texts]
    for name, found in (("cxc", positives.cxc), ("eccv", positives.eccv)):
        by_image, by_text = package.lists[name]
        expected = {image: {-1 if text < FIRST_TEXT else text for text in texts} for image, texts in by_image.items()}
        assert lists_of(found["images"], positives.image_ids, positives.text_ids) == expected
        expected = {text: set(images) for text, images in by_text.items()}
        assert lists_of(found["texts"], positives.text_ids, positives.image_ids) == expected
        assert all(len(set(each)) == size for each, size in zip(by_image.values(), found["images"].sizes, strict=True))


def test_the_installed_package_has_the_published_sizes():
    pytest.importorskip("eccv_caption", reason="reads the package eccv_caption, which is not installed")
    positives = read_positives()
    assert (len(positives.image_ids), len(positives.text_ids)) == (5000, 25000)
    assert np.bincount(positives.text_images).tolist() == [5] * 5000
    assert (positives.image_ids[0], positives.text_ids[0]) == (391895, 770337)
    sizes = {
        (name, side): (len(found[side].queries), len(found[side].positives))
        for name, found in (("cxc", positives.cxc), ("eccv", positives.eccv))
        for side in ("images", "texts")
    }
    assert sizes == {
        ("cxc", "images"): (5000, 35585),
        ("cxc", "texts"): (24972, 35585),
        ("eccv", "images"): (1261, 22550),
        ("eccv", "texts"): (1332, 11279),
    }
    # of two captions that are not among the 25,000
    assert np.sum(positives.eccv["images"].positives == NOT_SEARCHED) == 2


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "eccv_caption", None)
    with pytest.raises(DiptychError, match=r"^eccv_caption is not installed; run: pip install 'diptych\[eccv\]'$"):
        read_positives()


def corpus_of(coco, **columns):
    """A corpus of these images in another order, with an image and texts that are not measured."""
    images = [999, *sorted(coco.images)]
    texts = [(999, 3), *((image, text) for text, image in sorted(coco.own.items())), (images[-1], 4)]
    known = {
        "name": "coco",
        "image_ids": [f"val2014/COCO_val2014_{image:012}.jpg" for image in images],
        "image_groups": np.arange(len(images)) + 50,
        "image_splits": np.array(["test"] * len(images)),
        "texts": ["a text"] * len(texts),
        "text_groups": np.array([images.index(image) for image, _ in texts]) + 50,
        "text_splits": np.array(["test"] * len(texts)),
        "text_ids": [str(text) for _, text in texts],
    }
    return Corpus(**{**known, **columns})


def test_images_and_texts_are_found_by_their_ids(package):
    positives, corpus = read_positives(), corpus_of(package)
    part = corpus.take(*coco_rows(corpus, positives))
    assert [int(Path(name).stem[-12:]) for name in part.image_ids] == package.images
    assert list(map(int, part.text_ids)) == package.texts
    named = replace(corpus, image_ids=[name.replace("val2014/COCO_val2014_", "") for name in corpus.image_ids])
    for found, expected in zip(coco_rows(named, positives), coco_rows(corpus, positives), strict=True):
        assert np.array_equal(found, expected)


def test_a_corpus_that_is_not_coco_is_refused_with_what_is_needed(package):
    positives, corpus = read_positives(), corpus_of(package)
    needs = "open Karpathy's dataset_coco.json, or COCO's captions_val2014.json with --split val"
    for wrong, message in (
        (replace(corpus, text_ids=None), "coco: its texts have no ids, and ECCV Caption and CxC need those of COCO; "),
        (
            replace(corpus, image_ids=[f"{name}.png" for name in "abcdefghijk"]),
            f"coco: 10 of the 10 images of ECCV Caption and CxC are not in it (the first has COCO's id "
            f"{package.images[0]}); ",
        ),
        (
            corpus.take(np.arange(len(corpus.image_ids)), np.arange(len(corpus.texts) - 3)),
            "coco: 2 of the 20 texts of ECCV Caption and CxC are not in it (the first has COCO's id ",
        ),
        (
            replace(corpus, text_groups=np.roll(corpus.text_groups, 4)),
            f"coco: text {package.texts[0]} does not belong to image {package.images[0]}, as in COCO; ",
        ),
        (replace(corpus, text_ids=["dog.jpg#0"] * len(corpus.texts)), "coco: 20 of the 20 texts of "),
    ):
        with pytest.raises(DataError) as error:
            coco_rows(wrong, positives)
        assert str(error.value).startswith(message)
        assert str(error.value).endswith(needs)
        assert "\n" not in str(error.value)
