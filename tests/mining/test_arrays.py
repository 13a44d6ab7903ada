"""Own arrays mined: compared with sorting all scores and with the mining of a run; results; bad input."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.corpus import Corpus, Features
from diptych.errors import DataError, ScoreError
from diptych.evaluation.metrics import tiles
from diptych.mining.arrays import mine_embeddings
from diptych.mining.mine import mine
from diptych.model import Model
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(30, 6)).astype(np.float32)
TEXTS = RANDOM.normal(size=(60, 6)).astype(np.float32)
TEXT_GROUPS = np.arange(60) % 30


def sorted_lists(scores, query_groups, answer_groups, top):
    """Each row's negatives by descending score, of equal scores the earlier first; and their scores."""
    lists = np.full((len(scores), min(top, scores.shape[1])), -1)
    values = np.full(lists.shape, -np.inf, np.float32)
    for row, group in enumerate(query_groups):
        negatives = [column for column, other in enumerate(answer_groups) if other != group]
        best = sorted(negatives, key=lambda column: (-scores[row, column], column))[:top]
        lists[row, : len(best)], values[row, : len(best)] = best, scores[row, best]
    return lists, values


@settings(max_examples=30)
@given(
    st.permutations([0, 0, 1, 2, 2, 2]),
    st.permutations([0, 1, 1, 1, 2, 0, 0, 2]),
    st.lists(st.integers(-2, 2), min_size=28, max_size=28),
    st.integers(1, 9),
    st.integers(1, 7),
    st.booleans(),
    st.booleans(),
)
def test_lists_are_those_of_a_sort(image_groups, text_groups, numbers, top_texts, top_images, as_tensor, as_strings):
    vectors = np.array(numbers, np.float32).reshape(14, 2)
    images, texts = vectors[:6], vectors[6:]
    if as_strings:
        image_groups, text_groups = ([f"group {group}" for group in side] for side in (image_groups, text_groups))
    scores = images @ texts.T
    given = (torch.from_numpy(images), torch.from_numpy(texts)) if as_tensor else (images, texts)
    lengths = {"top_texts": top_texts, "top_images": top_images}
    found = mine_embeddings(*given, image_groups, text_groups, similarity="dot", **lengths)
    sides = (found.texts, found.text_scores), (found.images, found.image_scores)
    wanted = (
        sorted_lists(scores, image_groups, text_groups, top_texts),
        sorted_lists(scores.T, text_groups, image_groups, top_images),
    )
    for side, expected in zip(sides, wanted, strict=True):
        for array, values in zip(side, expected, strict=True):
            np.testing.assert_array_equal(array, values)
    assert found.texts.dtype == found.images.dtype == np.int32


@pytest.mark.parametrize("similarity", ["cosine", "euclidean", lambda images, texts: images @ texts.T])
def test_every_similarity_mines_what_it_scores(similarity):
    found = mine_embeddings(IMAGES, TEXTS, text_groups=TEXT_GROUPS, top_texts=7, top_images=5, similarity=similarity)
    lengths = np.linalg.norm(IMAGES, axis=1)[:, None] * np.linalg.norm(TEXTS, axis=1)
    scores = {
        "cosine": IMAGES @ TEXTS.T / lengths,
        "euclidean": -np.linalg.norm(IMAGES[:, None] - TEXTS, axis=2),
    }.get(similarity if isinstance(similarity, str) else "", IMAGES @ TEXTS.T)
    lists, values = sorted_lists(scores, np.arange(30), TEXT_GROUPS, 7)
    np.testing.assert_array_equal(found.texts, lists)
    np.testing.assert_allclose(found.text_scores, values, atol=1e-5)
    positives = scores[TEXT_GROUPS, np.arange(60)]
    assert found.hardness.positive == pytest.approx(np.median(positives), abs=1e-5)
    assert found.hardness.first_text == pytest.approx(np.median(values[:, 0]), abs=1e-5)


def test_sets_are_mined_in_small_tiles():
    sets, tiles_scored = RANDOM.normal(size=(300, 2, 3)), []

    def best_pair(images, texts):
        tiles_scored.append(len(images) * len(texts))
        return np.einsum("iad,tbd->itab", images, texts).max((2, 3))

    found = mine_embeddings(sets, sets[::-1], similarity=best_pair, top_texts=4)
    scores = np.einsum("iad,tbd->itab", sets, sets[::-1]).max((2, 3))
    np.testing.assert_array_equal(found.texts, sorted_lists(scores, np.arange(300), np.arange(300), 4)[0])
    assert max(tiles_scored) <= tiles.BLOCK_OF_SETS < 300 * 300


def test_a_run_mines_the_lists_of_its_encodings(tmp_path):
    captions = [f"a {('red', 'blue', 'big')[text % 3]} dog number {text // 4}" for text in range(60)]
    pixels = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)
    corpus = Corpus(
        "c",
        [str(row) for row in range(30)],
        np.arange(30),
        np.full(30, "train"),
        captions,
        np.arange(60) // 2,
        np.full(60, "train"),
        features=Features([pixels]),
    )
    vocabulary = Vocabulary.from_texts(captions, 1)
    model_settings = VSESettings(
        joint=8, text=GRUSettings(hidden=8, word=4), image=FeatureSettings(shape=(4,)), words=len(vocabulary)
    )
    torch.manual_seed(0)
    model = Model.from_matcher(model_settings.build().eval(), vocabulary, torch.device("cpu"))
    lists = mine(model, corpus, tmp_path / "lists.safetensors", weights="w", top_texts=9, top_images=4)
    encoded = model.encode_corpus(corpus)
    groups = {"text_groups": corpus.text_groups, "similarity": "dot", "top_texts": 9, "top_images": 4}
    found = mine_embeddings(encoded.images, encoded.texts, captions=captions, **groups)
    np.testing.assert_array_equal(found.texts, lists.texts)
    np.testing.assert_array_equal(found.images, lists.images)
    assert found.hardness.model_dump() == pytest.approx(lists.header.hardness.model_dump(), rel=1e-5)
    without = mine_embeddings(encoded.images, encoded.texts, **groups)
    assert not np.array_equal(without.texts, lists.texts), "no caption is shared: the test would show nothing"


def test_the_result_prints_a_table_and_becomes_json_and_a_frame():
    found = mine_embeddings(IMAGES, TEXTS, text_groups=TEXT_GROUPS, top_texts=59, top_images=2)
    lines = str(found).splitlines()
    assert lines[0] == "hardest 59 texts of 30 images, hardest 2 images of 60 texts"
    hardness = found.hardness
    texts, images = (f"{value:.3f}" for value in (hardness.first_text, hardness.first_image))
    assert lines[3].split() == ["texts", "per", "image", f"{hardness.positive:.3f}", texts, f"{hardness.last_text:.3f}"]
    assert lines[4].split()[3:] == [f"{hardness.positive:.3f}", images, f"{hardness.last_image:.3f}"]
    assert lines[-1] == found.shortage
    assert found.shortage == "fewer negatives than requested: the shortest list has 58 texts instead of 59"
    assert repr(found) == f"MinedNegatives({lines[0]})"
    stored = json.loads(json.dumps(found.to_json()))
    assert (stored["images"], stored["texts"], stored["top_texts"], stored["top_images"]) == (30, 60, 59, 2)
    assert stored["hardness"] == hardness.model_dump()
    frame = found.to_frame()
    assert len(frame) == 30 * 58 + 60 * 2  # without the padding
    entry = frame[(frame["query"] == "text") & (frame["row"] == 7) & (frame["rank"] == 2)].iloc[0]
    assert (entry["negative"], entry["score"]) == (found.images[7, 1], found.image_scores[7, 1])


def test_without_a_shortage_nothing_stands_below_the_table():
    found = mine_embeddings(IMAGES, TEXTS, text_groups=TEXT_GROUPS, top_texts=3, top_images=2)
    assert found.shortage is None
    assert len(str(found).splitlines()) == 5


def test_progress_counts_the_texts():
    reports: list[tuple[int, int]] = []
    mine_embeddings(IMAGES, TEXTS, text_groups=TEXT_GROUPS, progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (60, 60)


NAN = np.where(np.arange(180).reshape(30, 6) == 20, np.nan, IMAGES).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "images", "options", "message"),
    [
        (ScoreError, IMAGES, {"top_texts": 0}, "lists of 0 texts and 60 images; give integers from 1 on"),
        (ScoreError, IMAGES, {"top_images": 1.5}, "lists of 300 texts and 1.5 images; give integers from 1 on"),
        (ScoreError, NAN, {}, "image 3: its embedding has a NaN (rows count from 0)"),
        (
            ScoreError,
            IMAGES[:, :5],
            {},
            "images have 5 dimensions and texts 6; both must be embedded in the same space",
        ),
        (ScoreError, IMAGES, {"captions": ["a"]}, "1 captions for 60 texts; give one caption per text"),
        (ScoreError, IMAGES, {"captions": ["a"] * 59 + [5]}, "caption 59: int; captions are strings"),
        (
            *(ScoreError, IMAGES, {"text_groups": TEXT_GROUPS + 1}),
            "image 0: no text of its group 0 to find; leave it out (Corpus.matched does)",
        ),
        (
            *(ScoreError, IMAGES, {"similarity": lambda images, texts: np.full((len(images), len(texts)), np.nan)}),
            "image 0 and text 0: their score is not a number (rows count from 0)",
        ),
        (
            *(DataError, IMAGES, {"image_groups": np.zeros(30, int), "text_groups": np.zeros(60, int)}),
            "all images and texts are of one group; there are no negatives to mine",
        ),
        (
            *(DataError, IMAGES, {"captions": ["A dog."] * 60}),
            "every image has the captions of every other; there are no negatives to mine",
        ),
    ],
)
def test_what_cannot_be_mined_is_an_error(kind, images, options, message):
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        mine_embeddings(images, TEXTS, **{"text_groups": TEXT_GROUPS, **options})
