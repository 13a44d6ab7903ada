from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diptych.errors import DataError
from diptych.models.calibration.calibrate import calibrate, captioned_photos


def encoded(texts, image_groups, text_groups):
    return SimpleNamespace(
        corpus=SimpleNamespace(texts=texts),
        images=torch.eye(len(image_groups)),
        texts=torch.ones(len(texts), len(image_groups)),
        image_groups=np.array(image_groups),
        text_groups=np.array(text_groups),
    )


def test_a_text_belongs_to_the_first_photo_of_its_group():
    photos = captioned_photos(encoded(["a", "b", "c", "d"], [7, 5, 7], [5, 7, 9, 7]))
    assert photos.captions == ["a", "b", "d"]
    assert photos.owners.tolist() == [1, 0, 0]
    assert photos.texts.shape == (3, 3)


@pytest.mark.parametrize("lacks", ["is_inner_product", "encodes_vectors", "reads_pictures"])
def test_models_without_a_calibration_say_so(lacks, tmp_path):
    has = {"is_inner_product": True, "encodes_vectors": True, "reads_pictures": True, lacks: False}
    with pytest.raises(DataError, match="no calibration"):
        calibrate(SimpleNamespace(**has), "model", encoded(["a"], [1], [1]), tmp_path)
    assert not list(tmp_path.iterdir())
