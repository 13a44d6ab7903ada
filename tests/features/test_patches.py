import numpy as np
import pytest
import torch
from PIL import Image

from diptych.features.crops import Crops, fixed_crops
from diptych.features.patches import packed_patches, packed_side, patch_grid
from diptych.models.pretrained_pairs.unpacking import packed_grids, present_patches, unpacked

SIZES = [(47, 60), (93, 50), (20, 21), (64, 64), (701, 398), (1, 900), (900, 1)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("patch", "most"), [(4, 30), (16, 256), (8, 1)])
def test_the_grid_is_that_of_transformers(size, patch, most, pairs):
    from transformers.models.siglip2.image_processing_pil_siglip2 import get_image_size_for_max_num_patches

    height, width = get_image_size_for_max_num_patches(size[1], size[0], patch, most)
    assert patch_grid(size, patch, most) == (height // patch, width // patch)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_packed_can_be_unpacked(size):
    patch, most = 4, 30
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    packed = packed_patches(photo, patch, most, Image.Resampling.BILINEAR)
    side = packed_side(patch, most)
    assert packed.shape == (3, side, side)
    squares = torch.from_numpy(packed)[None]
    rows, columns = patch_grid(size, patch, most)
    assert packed_grids(squares, patch).tolist() == [[rows, columns]]
    assert present_patches(packed_grids(squares, patch), most).sum() == rows * columns
    patches = unpacked(squares, patch, most)[0, : rows * columns].view(rows, columns, patch, patch, 3)
    again = patches.transpose(1, 2).reshape(rows * patch, columns * patch, 3).numpy()
    resized = photo.resize((columns * patch, rows * patch), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(again, np.asarray(resized))
    crops = Crops(name="patches", patch=patch, patches=most)
    np.testing.assert_array_equal(fixed_crops(photo, crops, side), packed[None])


def test_there_is_always_room_for_the_numbers():
    for most in range(1, 300):
        assert (packed_side(16, most) // 16) ** 2 > most
