from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.negatives import DrawnNegatives
from diptych.data.sampling.neighbours import QueryDirections
from diptych.data.sampling.pairs import Pairs
from diptych.errors import ImageError
from diptych.features.readers import FeatureReader, PixelReader
from diptych.text.vocabulary import Vocabulary
from support.numbered import TEXTS, numbered, numbered_reader


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


def test_an_unreadable_image_leaves_its_pairs_out_and_moves_nobody():
    corpus = make_scenes(train=6, val=1, test=1, texts=2).split("train")
    whole = [np.asarray(picture.load()) for picture in corpus.pictures]
    pictures = list(corpus.pictures)
    pictures[2] = Broken()
    reader = PixelReader(pictures, 128)
    table = Vocabulary.from_texts(corpus.texts, 1).encode_all(corpus.texts)
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


@given(
    st.lists(st.tuples(st.integers(0, 7), numbered), min_size=1, max_size=10),
    st.sets(st.integers(0, 7), max_size=5),
    st.integers(0, 99),
    st.sampled_from(["both", "images", "texts", "none"]),
)
def test_a_batch_says_the_same_as_its_numbers(drawn, missing, seed, kinds):
    """Texts in several pairs, negatives of both kinds, some of which lack, and images that cannot be read."""
    random = np.random.default_rng(seed)
    images, texts = np.array(drawn).T
    negatives = DrawnNegatives(
        random.integers(-1, 8, (len(images), 3)) if kinds in ("both", "images") else None,
        random.integers(-1, TEXTS, (len(images), 2)) if kinds in ("both", "texts") else None,
    )
    is_query = random.random((len(images), 2)) < 0.5
    given_pairs = Pairs(images, texts, ()).with_extra(QueryDirections(is_query))
    if kinds != "none":
        given_pairs = given_pairs.with_extra(negatives)
    batch = numbered_reader(missing).read(given_pairs)
    kept = [pair for pair, image in enumerate(images.tolist()) if image not in missing]
    asked = {*images.tolist(), *(() if negatives.images is None else negatives.images[negatives.images >= 0].tolist())}
    assert set(batch.skipped) == asked & missing
    assert len(batch) == len(kept)
    shown, said = batch.images[:, 0].astype(int).tolist(), batch.ids[:, :1].ravel().tolist()
    assert len(set(shown)) == len(shown)
    assert len(set(said)) == len(said)
    drawn_negatives = batch.extras.get(DrawnNegatives)
    for pair, row in enumerate(kept):
        assert shown[batch.image_of[pair]] == images[row]
        assert said[batch.text_of[pair]] == texts[row]
        assert batch.groups[pair] == 100 + texts[row] % 4
        assert batch.extras[QueryDirections].is_query[pair].tolist() == is_query[row].tolist()
        if negatives.images is not None:
            found = [-1 if negative < 0 else shown[negative] for negative in drawn_negatives.images[pair].tolist()]
            assert found == [-1 if negative in missing else negative for negative in negatives.images[row].tolist()]
        if negatives.texts is not None:
            found = [-1 if negative < 0 else said[negative] for negative in drawn_negatives.texts[pair].tolist()]
            assert found == negatives.texts[row].tolist()
    # The texts of the pairs come first, in the order of the pairs; then what only the negatives need.
    own = list(dict.fromkeys(texts[kept].tolist()))
    assert said[: len(own)] == own
    assert batch.text_repeats == (len(own) < len(kept))
    assert set(shown[: len(set(images[kept].tolist()))]) == set(images[kept].tolist())
    assert batch.lengths.tolist() == [text + 1 for text in said]
    assert batch.text_features.tolist() == [[text, 10 * text] for text in said]
    if kinds == "none":
        assert drawn_negatives is None
        assert (len(said), len(shown)) == (len(own), len(set(images[kept].tolist())))


@given(st.lists(st.tuples(st.integers(0, 7), numbered), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 99))
def test_a_batch_with_fewer_negatives_has_no_image_that_nobody_needs(drawn, most, seed):
    random = np.random.default_rng(seed)
    images, texts = np.array(drawn).T
    negatives = DrawnNegatives(random.integers(-1, 8, (len(images), 4)), random.integers(-1, TEXTS, (len(images), 2)))
    is_query = random.random((len(images), 2)) < 0.5
    pairs = Pairs(images, texts, ()).with_extra(QueryDirections(is_query)).with_extra(negatives)
    batch = numbered_reader(set()).read(pairs)
    rows = batch.extras[DrawnNegatives]
    fewer = batch.with_extra(replace(rows, images=rows.images[:, :most]))
    expected = numbered_reader(set()).read(pairs.with_extra(replace(negatives, images=negatives.images[:, :most])))
    for name in ("images", "image_of", "ids", "lengths", "text_of", "groups", "text_features"):
        assert np.array_equal(getattr(fewer, name), getattr(expected, name)), name
    for side in ("images", "texts"):
        found = getattr(fewer.extras[DrawnNegatives], side)
        assert np.array_equal(found, getattr(expected.extras[DrawnNegatives], side)), side
    assert np.array_equal(fewer.extras[QueryDirections].is_query, is_query)
