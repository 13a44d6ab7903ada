"""Excluded pairs compared with the definition, pair by pair."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.mining.exclusions import Exclusions

GROUPS = st.lists(st.integers(-2, 4), min_size=1, max_size=20)


@given(GROUPS, st.lists(st.tuples(st.integers(-2, 4), st.sampled_from("abcde")), min_size=1, max_size=30), st.data())
def test_a_pair_is_excluded_if_the_images_group_has_the_text(image_groups, texts, data):
    text_groups, strings = [group for group, _ in texts], [string for _, string in texts]
    wanted = {
        (image, text)
        for image, group in enumerate(image_groups)
        for text, string in enumerate(strings)
        if any(other == string and own == group for own, other in texts)
    }
    height, width = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 30))
    exclusions = Exclusions(np.array(image_groups), np.array(text_groups), strings)
    found = []
    for column in range(0, len(texts), width):
        excluded = exclusions.against(slice(column, min(column + width, len(texts))))
        for row in range(0, len(image_groups), height):
            rows, columns = excluded(slice(row, min(row + height, len(image_groups))))
            found += zip((rows + row).tolist(), (columns + column).tolist(), strict=True)
    assert len(found) == len(set(found)), "each pair once"
    assert set(found) == wanted
