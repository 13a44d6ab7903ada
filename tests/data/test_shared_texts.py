import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.shared_texts import SharedTexts
from diptych.text.tokenisers.treebank import tokenise

rows = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["a dog", "A dog", "a  dog .", "a dog.", "two dogs"])), min_size=1
)


@given(rows, st.lists(st.integers(-1, 6), min_size=1))
def test_a_group_has_its_texts_and_all_with_the_same_tokens(rows, groups):
    text_groups, texts = np.array([group for group, _ in rows], np.int64), [text for _, text in rows]
    shared = SharedTexts(text_groups, texts)
    for row, text in enumerate(texts):
        found = shared.group_has_text(np.array(groups, np.int64), np.full(len(groups), row))
        expected = [
            any(other == group and tokenise(text) == tokenise(other_text) for other, other_text in rows)
            for group in groups
        ]
        assert found.tolist() == expected


def test_the_groups_of_each_distinct_text():
    shared = SharedTexts(np.array([3, 5, 5, 7]), ["a dog", "A dog", "a cat", "a bird"])
    assert shared.distinct_ids.tolist() == [0, 0, 1, 2]
    offsets = shared.offsets.tolist()
    assert [shared.groups[offsets[d] : offsets[d + 1]].tolist() for d in range(3)] == [[3, 5], [5], [7]]


def test_texts_that_are_not_known_are_all_distinct():
    text_groups = np.array(["x", "y", "y"])
    unknown, different = SharedTexts(text_groups, None), SharedTexts(text_groups, ["a dog", "a cat", "a bird"])
    assert unknown.distinct_ids.tolist() == different.distinct_ids.tolist() == [0, 1, 2]
    assert unknown.groups.tolist() == different.groups.tolist() == ["x", "y", "y"]
    assert unknown.offsets.tolist() == different.offsets.tolist() == [0, 1, 2, 3]
