from dataclasses import replace

import numpy as np
import pytest

from diptych.data.corpus import Features
from diptych.data.formats.scenes import make_scenes
from diptych.errors import DataError
from diptych.features.crops import Crops
from diptych.features.image_input import ImageInput, pictures_of
from diptych.features.regions import Regions


@pytest.mark.parametrize(
    ("regions", "reads_map"),
    [
        (None, False),
        (Regions(method="crops"), False),
        (Regions(), True),
        (Regions(method="selective-search"), True),
        (Regions(method="annotated"), True),
    ],
    ids=["pooled", "crops", "grid", "proposed", "annotated"],
)
def test_regions_are_pooled_from_the_map_unless_they_are_crops(regions, reads_map):
    assert ImageInput("crops", (3, 32, 32), Crops(), regions).reads_map is reads_map


def test_a_corpus_of_stored_features_has_no_pictures():
    corpus = make_scenes(train=2, val=0, test=0)
    assert pictures_of(corpus) is corpus.pictures
    stored = replace(corpus, pictures=None, features=Features([np.zeros((2, 3), np.float32)]))
    with pytest.raises(DataError, match="has stored features but no pictures; use a recipe"):
        pictures_of(stored)
