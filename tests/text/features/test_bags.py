import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.text.features.bags import DistinctTexts, known_tokens, word_counts
from diptych.text.tokenisers.token_table import TokenTable


def table(texts):
    offsets = np.cumsum([0, *map(len, texts)])
    return TokenTable(np.array([word for text in texts for word in text], np.int32), offsets.astype(np.int64))


def test_known_words_in_the_form_of_embedding_bag():
    ids = torch.tensor([[1, 4, 5, 4, 2], [1, 3, 2, 0, 0], [1, 5, 6, 2, 0]])
    known = torch.tensor([False, False, False, False, True, False, True])
    words, begins = known_tokens(ids, known)
    assert words.tolist() == [4, 4, 6]
    assert begins.tolist() == [0, 2, 2]


def test_specials_are_no_words():
    assert word_counts(table([[1, 4, 3, 4, 2], [1, 6, 2]]), 8).tolist() == [0, 0, 0, 0, 2, 0, 1, 0]


@given(st.lists(st.lists(st.integers(1, 5), max_size=3), max_size=12))
def test_distinct_texts_are_those_of_a_dictionary(texts):
    distinct = DistinctTexts.from_table(table(texts))
    keys = list(dict.fromkeys(map(tuple, texts)))
    assert [tuple(texts[first]) for first in distinct.first] == keys
    assert [keys[each] for each in distinct.inverse] == [tuple(text) for text in texts]
    assert distinct.counts.tolist() == [list(map(tuple, texts)).count(key) for key in keys]


def test_distinct_texts_come_padded_in_blocks():
    texts = table([[1, 4, 2], [1, 2], [1, 4, 2], [1, 5, 6, 2]])
    blocks = DistinctTexts.from_table(texts).padded_batches(texts, 2)
    assert [ids.tolist() for ids, _ in blocks] == [[[1, 4, 2], [1, 2, 0]], [[1, 5, 6, 2]]]
    assert [lengths.tolist() for _, lengths in blocks] == [[3, 2], [4]]
    empty = table([])
    assert DistinctTexts.from_table(empty).padded_batches(empty, 2) == []
