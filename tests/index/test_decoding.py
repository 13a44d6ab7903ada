import numpy as np
import pytest

from diptych.features.crops import resized_side
from diptych.index.decoding import photo_options
from diptych.index.thumbnails import LONGEST
from diptych.models.encode import CROPS_PER_BATCH


class FakeEngine:
    """Reads a photo as an array of this shape and type."""

    decode_size = 224

    def __init__(self, shape, dtype=np.uint8):
        self.shape, self.dtype = shape, dtype

    def preprocess(self, photo):
        return np.zeros(self.shape, self.dtype)


@pytest.mark.parametrize(
    ("shape", "batch_size"), [((3, 224, 224), CROPS_PER_BATCH), ((10, 3, 224, 224), 3), ((50, 3, 224, 224), 1)]
)
def test_a_batch_holds_a_number_of_crops(shape, batch_size):
    options = photo_options(FakeEngine(shape))
    assert options.batch_size == batch_size
    assert options.decode_size == max(resized_side(224), LONGEST // 2)


def test_a_photo_is_decoded_large_enough_for_its_thumbnail():
    assert photo_options(FakeEngine((3, 8, 8))).decode_size == LONGEST // 2


@pytest.mark.parametrize("model", [FakeEngine((36, 512), np.float32), FakeEngine((3,))], ids=["regions", "vector"])
def test_a_model_that_does_not_read_squares_gets_the_whole_photo(model):
    assert photo_options(model).decode_size is None


def test_a_model_that_needs_photos_in_full_gets_them():
    model = FakeEngine((1, 3, 224, 224))
    model.decode_size = None
    assert photo_options(model).decode_size is None
