"""Word vectors for the recipes that need a file of them."""

import numpy as np
import pytest

from diptych.text.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def write_vectors():
    """Writes a file of word vectors, four numbers each, that lacks one word of the texts."""

    def write(texts, path):
        words = sorted(Vocabulary.from_texts(texts, 1).words)
        values = np.random.default_rng(0).standard_normal((len(words), 4))
        lines = [
            f"{word} {' '.join(f'{value:.3f}' for value in row)}\n" for word, row in zip(words, values, strict=True)
        ]
        path.write_text("".join(lines[1:]))

    return write
