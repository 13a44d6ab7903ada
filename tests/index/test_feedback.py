"""Relevance feedback: the rule, and what searches do with it."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import DataError, NotFoundError
from diptych.index.entries import MAX_MARKED, SearchRequest
from diptych.index.feedback import LESS, MORE, images_of, turned, vectors_of, with_feedback
from diptych.index.query import Query
from diptych.index.search import Searcher
from diptych.models.engines.engine import Encodings

NONE = np.zeros((0, 3), np.float32)
X, Y, Z = np.eye(3, dtype=np.float32)
MODEL = SimpleNamespace(is_inner_product=True)
TEXT = Query(Encodings(X[None]), "text", SearchRequest(), "a dog")


class Images:
    """A store of two images and a text of the second."""

    address = "x"

    def entries(self, ids):
        if ids[0] not in (1, 2, 3):
            raise DataError("no such entry")
        return [SimpleNamespace(image=2 if ids[0] == 3 else ids[0])]

    def encoded(self, id):
        return "image", Encodings(np.stack([X, 2 * Y, Z])[id - 1][None])


def test_the_rule_is_that_of_rocchio():
    expected = X + MORE * Y - LESS * Z
    found = turned(5 * X, np.stack([Y, 3 * Y]), Z[None])
    assert found == pytest.approx(5 * expected / np.linalg.norm(expected))
    assert found.dtype == np.float32


def test_without_a_query_the_liked_images_are_the_query():
    assert turned(None, np.stack([X, Y]), NONE) == pytest.approx(np.array([1, 1, 0]) / np.sqrt(2))
    expected = X - LESS * Y
    assert turned(None, X[None], Y[None]) == pytest.approx(expected / np.linalg.norm(expected))


def test_without_feedback_nothing_changes():
    assert turned(2 * X, NONE, NONE) == pytest.approx(2 * X)
    assert with_feedback(TEXT, Images(), MODEL) is TEXT


vectors = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3).map(lambda row: np.array(row, np.float32))


@given(vectors, st.lists(vectors, max_size=3), st.lists(vectors, max_size=3))
def test_the_length_stays_and_the_result_is_finite(query, more, less):
    found = turned(query, np.array(more, np.float32).reshape(-1, 3), np.array(less, np.float32).reshape(-1, 3))
    assert np.isfinite(found).all()
    length = np.linalg.norm(found)
    assert length == pytest.approx(np.linalg.norm(query), rel=1e-3, abs=1e-6) or length == pytest.approx(0, abs=1e-3)


def test_a_text_stands_for_its_image_and_unknown_ids_are_named():
    assert vectors_of(Images(), images_of(Images(), [1, 3])).tolist() == [X.tolist(), (2 * Y).tolist()]
    with pytest.raises(NotFoundError, match="no entry 9 in this index"):
        images_of(Images(), [1, 9])


def test_an_image_that_people_want_less_of_is_no_hit_even_if_they_marked_its_text(kit, store):
    kit.put(store, ["n"], ["red dog"])
    kit.put(store, [f"m{number}" for number in range(9)])
    searcher = Searcher(store, kit.FakeModel())
    (text,), image = store.vectors("text")[0].tolist(), store.vectors("image")[0].tolist()[0]
    (answer,) = searcher.search_texts(["red dog"], SearchRequest(k=20, less=(text,)))
    assert image not in [hit.entry.id for hit in answer.hits]
    assert len(answer.hits) == 9
    (none,) = searcher.search_texts(["red dog"], SearchRequest(less=tuple(store.vectors("image")[0].tolist())))
    assert none.message == "There is nothing else: every image is one that you want less of."


def request(**options):
    return Query(Encodings(X[None]), "text", SearchRequest(**options), "a dog")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (request(more=(1,), mode="words"), "choose another mode"),
        (request(more=(1,), to="text"), "search for images"),
        (request(more=(1, 2), less=(2,)), "entry 2 is in both"),
        (request(more=(1, 2), less=(3,)), "entry 2 is in both"),
        (request(less=tuple(range(MAX_MARKED + 1))), "at most 100"),
        (Query(None, "image", SearchRequest(less=(1,))), "name an image to find more of"),
    ],
)
def test_what_makes_no_sense_is_refused(query, reason):
    with pytest.raises(DataError, match=reason):
        with_feedback(query, Images(), MODEL)


def test_models_that_cannot_mix_words_and_images_say_so():
    with pytest.raises(DataError, match="cannot mix words and images; leave out the words"):
        with_feedback(request(more=(2,)), Images(), SimpleNamespace(is_inner_product=False))
    no_text = Query(None, "image", SearchRequest(more=(2,)))
    found = with_feedback(no_text, Images(), SimpleNamespace(is_inner_product=False))
    assert found.encoding.vectors.tolist() == [Y.tolist()]
