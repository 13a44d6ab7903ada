import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diptych.errors import DataError
from diptych.index.query_encoding import SHARE, TEXT_SHARE, add_text, encode_query_texts, without
from diptych.models.engines.engine import Encodings

numbers = st.floats(-9, 9, width=32)


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_the_excluded_direction_is_taken_from_the_wanted_one(kit):
    encoded = encode_query_texts(kit.FakeModel(), ["red", "dog -blue", 'car -blue -"two words"'])
    red, dog, car, blue, two = (kit.vectors_of(text)[0] for text in ("red", "dog", "car", "blue", "two words"))
    np.testing.assert_array_equal(encoded.vectors[0], red)
    expected = unit(unit(dog) - SHARE * unit(blue)) * np.linalg.norm(dog)
    np.testing.assert_allclose(encoded.vectors[1], expected, rtol=1e-5)
    expected = unit(unit(car) - SHARE * unit(unit(blue) + unit(two))) * np.linalg.norm(car)
    np.testing.assert_allclose(encoded.vectors[2], expected, rtol=1e-5)
    assert encoded.vectors.dtype == np.float32


def test_texts_without_exclusions_are_encoded_as_they_are(kit):
    model = kit.FakeModel(set_kinds=("text",))
    assert encode_query_texts(model, ["  red - dog"]).sets is not None
    np.testing.assert_array_equal(encode_query_texts(model, ["  red - dog"]).vectors, kit.vectors_of("  red - dog"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"is_inner_product": False}, "score is not an inner product"), ({"set_kinds": ("text",)}, "sets of vectors")],
)
def test_models_that_rescore_cannot_exclude(kit, options, reason):
    with pytest.raises(DataError, match=f"^-blue: a model .*{reason} cannot exclude words; leave them out"):
        encode_query_texts(kit.FakeModel(**options), ["dog", "red -blue"])


@given(arrays(np.float32, 4, elements=numbers), arrays(np.float32, (2, 4), elements=numbers))
def test_the_length_stays_and_the_excluded_cosine_never_grows(wanted, excluded):
    turned = without(wanted, excluded)
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(wanted), rel=1e-3, abs=1e-6)
    assert turned @ excluded.sum(0) <= wanted @ excluded.sum(0) + 1e-3 * (1 + np.abs(excluded).sum())


def test_words_are_added_to_a_picture(kit):
    picture, words = kit.vectors_of("photo"), kit.vectors_of("night")
    added = add_text(kit.FakeModel(), Encodings(picture), "night").vectors
    expected = unit((1 - TEXT_SHARE) * unit(picture[0]) + TEXT_SHARE * unit(words[0]))
    np.testing.assert_allclose(added, expected[None], rtol=1e-5)
    turned = add_text(kit.FakeModel(), Encodings(picture), "night -blue").vectors
    assert not np.allclose(turned, added)


def test_models_that_rescore_cannot_add_words(kit):
    picture = kit.vectors_of("photo")
    with pytest.raises(DataError, match=r"^'night': a model whose score is not an inner product cannot combine"):
        add_text(kit.FakeModel(is_inner_product=False), Encodings(picture), "night")
    with pytest.raises(DataError, match=r"^'night': a model that compares sets of vectors cannot combine"):
        add_text(kit.FakeModel(), Encodings(picture, (picture,)), "night")
