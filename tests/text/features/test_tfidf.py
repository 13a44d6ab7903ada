import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.text.features.bags import known_tokens
from diptych.text.features.tfidf import inverse_document_frequency, tfidf
from diptych.text.tokenisers.token_table import SPECIALS, TokenTable
from diptych.text.vocabulary import Vocabulary

WORDS = 6


def table(texts):
    offsets = np.cumsum([0, *map(len, texts)])
    return TokenTable(np.array([word for text in texts for word in text], np.int32), offsets.astype(np.int64))


@given(st.lists(st.lists(st.integers(0, WORDS - 1), max_size=5), max_size=8))
def test_idf_and_tfidf_are_those_of_a_dictionary(texts):
    weights = inverse_document_frequency(table(texts), WORDS)
    containing = Counter(word for text in texts for word in set(text))
    expected = [math.log((1 + len(texts)) / (1 + containing[word])) + 1 for word in range(WORDS)]
    np.testing.assert_allclose(weights, expected)
    begins = torch.from_numpy(table(texts).offsets[:-1])
    made = tfidf(torch.from_numpy(table(texts).flat).long(), begins, torch.from_numpy(weights))
    for text, row in zip(texts, made.tolist(), strict=True):
        values = [text.count(word) * expected[word] for word in range(WORDS)]
        length = math.sqrt(sum(value**2 for value in values)) or 1
        np.testing.assert_allclose(row, [value / length for value in values])


def test_tfidf_agrees_with_scikit_learn():
    extraction = pytest.importorskip("sklearn.feature_extraction.text")
    texts = ["a red dog", "a dog and a dog", "two red stars", "stars"]
    vocabulary = Vocabulary.from_texts(texts, 1)
    table = vocabulary.encode_all(texts)
    weights = torch.from_numpy(inverse_document_frequency(table, len(vocabulary)))
    ids, _ = table.batch(np.arange(len(texts)))
    known = torch.arange(len(vocabulary)) >= len(SPECIALS)
    ours = tfidf(*known_tokens(torch.from_numpy(ids), known), weights)
    theirs = extraction.TfidfVectorizer(vocabulary=list(vocabulary.words), token_pattern=r"\S+").fit_transform(texts)
    np.testing.assert_allclose(ours.numpy()[:, -len(vocabulary.words) :], theirs.toarray(), atol=1e-6)
