import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.shared_texts import SharedTexts
from diptych.text.tokenisers.treebank import tokenise

texts = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["a dog", "A dog", "a  dog .", "a dog.", "two dogs"])), min_size=1
)


@given(texts, st.lists(st.integers(-1, 6), min_size=1))
def test_a_group_says_its_texts_and_what_has_the_same_words(rows, groups):
    own, words = np.array([group for group, _ in rows], np.int64), [text for _, text in rows]
    said = SharedTexts(own, words)
    for text in range(len(rows)):
        asked = np.array(groups, np.int64)
        found = said.by(asked, np.full(len(groups), text))
        expected = [
            any(other == group and tokenise(words[text]) == tokenise(spoken) for other, spoken in rows)
            for group in groups
        ]
        assert found.tolist() == expected


def test_the_groups_of_each_string():
    said = SharedTexts(np.array([3, 5, 5, 7]), ["a dog", "A dog", "a cat", "a bird"])
    assert said.strings.tolist() == [0, 0, 1, 2]
    assert [said.groups[said.first[s] : said.first[s + 1]].tolist() for s in range(3)] == [[3, 5], [5], [7]]
