"""Small corpora."""

from dataclasses import replace

import numpy as np

from diptych.data.corpus import Features


def with_features(corpus, size=12):
    """Stored features in place of pictures: a few colours of each drawn scene, 12 at most."""
    rows = [np.asarray(picture.load().resize((2, 2))).reshape(-1) / 255 for picture in corpus.pictures]
    return replace(corpus, pictures=None, features=Features([np.array(rows, np.float32)[:, :size]]))
