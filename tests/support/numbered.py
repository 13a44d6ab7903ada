"""Images and texts that say their number, so that a test sees whose they are wherever they turn up."""

import numpy as np
from hypothesis import strategies as st

from diptych.data.corpus import Features
from diptych.data.sampling.batch import PairReader
from diptych.features.readers import FeatureReader
from diptych.text.tokenisers.token_table import TokenTable


class Rows:
    """What a fitted tower made of each text: a row that says whose it is."""

    def __getitem__(self, texts):
        return np.stack([texts, 10 * texts], axis=1).astype(np.float32)


TEXTS = 9
numbered = st.integers(0, TEXTS - 1)


def numbered_reader(missing):
    """Images and texts that say their number; text j has j + 1 words, all of them j."""
    readable = np.array([image for image in range(8) if image not in missing], np.int64)
    reader = FeatureReader(Features([readable[:, None].astype(np.float32)]), readable, dict.fromkeys(missing, "broken"))
    flat = np.concatenate([np.full(text + 1, text) for text in range(TEXTS)]).astype(np.int32)
    table = TokenTable(flat, np.cumsum([0, *range(1, TEXTS + 1)]))
    return PairReader(100 + np.arange(TEXTS) % 4, reader, table, Rows())
