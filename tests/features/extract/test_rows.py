"""What is stored of a picture: its own features, whatever stands beside it."""

import numpy as np
import pytest
import torch

from diptych.data.formats.scenes import make_scenes
from diptych.data.images import PictureFile
from diptych.errors import RecipeError
from diptych.features import proposals
from diptych.features.crops import Crops, fixed_crops
from diptych.features.extract import extract
from diptych.features.regions import Regions
from diptych.features.roi_align import roi_align
from diptych.features.store import FeatureStoreSpec

CPU = torch.device("cpu")
APART = Regions(method="crops")


@pytest.mark.parametrize("crops", ["1C", "10C"])
@pytest.mark.parametrize("regions", [None, Regions()], ids=["pooled", "grid"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_picture_has_its_own_features(pictures, folder, crops, regions, dtype, extracted, expected, values):
    how = {"crops": crops, "regions": regions, "dtype": dtype}
    stored = extracted(pictures, folder, **how)
    assert stored.features.shape == ((4, 3) if regions else (3,))
    assert stored.computed == 40
    assert stored.readable.tolist() == list(range(40))
    assert stored.skipped == stored.enlarged == {}
    np.testing.assert_allclose(values(stored), expected(pictures, **how), atol=1e-3 if dtype == "float16" else 1e-6)
    assert np.load(folder / "part-00000.npy").dtype == dtype


@pytest.mark.parametrize("crops", ["1C", "mirrored", "10C"])
def test_crops_that_are_kept_apart_have_a_row_each(pictures, folder, crops, extracted, expected, values, tiny):
    network, seen = tiny(), Crops(name=crops)
    stored = extracted(pictures, folder, network, crops=crops, regions=APART)
    assert stored.features.shape == (seen.count, 3)
    assert stored.boxes is None
    squares = [torch.from_numpy(fixed_crops(picture.load(), seen, tiny.side)) for picture in pictures]
    np.testing.assert_allclose(values(stored), torch.stack([tiny()(each).detach() for each in squares]), atol=1e-6)
    np.testing.assert_allclose(values(stored).mean(1), expected(pictures, crops=crops), atol=1e-6)
    assert len(set(network.batches)) == 1  # always as many squares, however many pictures are left
    assert network.batches[0] % seen.count == 0
    assert extracted(pictures, folder, crops=crops, regions=APART).computed == 0


@pytest.mark.parametrize("workers", [0, 3])
def test_views_do_not_depend_on_neighbours_threads_or_interruptions(
    pictures, folder, tmp_path, workers, extracted, values
):
    how = {"crops": "mirrored", "regions": APART}
    whole = values(extracted(pictures, folder, **how))
    extracted(pictures[7:8], tmp_path / "other", **how)
    again = extracted(pictures[::-1], tmp_path / "other", workers=workers, **how)
    np.testing.assert_array_equal(values(again)[::-1], whole)


def test_small_photos_are_named_with_their_size(folder, tmp_path, extracted, photo):
    sizes = [(14, 14), (13, 40), (40, 13), (3, 5)]
    pictures = [photo(tmp_path / f"{number}.png", number, size) for number, size in enumerate(sizes)]
    for _ in range(2):
        assert extracted(pictures, folder).enlarged == {1: (13, 40), 2: (40, 13), 3: (3, 5)}


def test_drawn_pictures_are_known_by_their_pixels(folder, extracted, expected, values):
    pictures = make_scenes(train=5, val=0, test=0).pictures
    first = extracted(pictures, folder)
    assert first.computed == 5
    np.testing.assert_array_equal(values(first), expected(pictures))
    again = extracted(pictures[::-1], folder)
    assert again.computed == 0
    np.testing.assert_array_equal(values(again), values(first)[::-1])


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_the_number_of_threads_changes_nothing(pictures, folder, workers, extracted, expected, values):
    twice = [*pictures, *pictures[::-1]]
    stored = extracted(twice, folder, workers=workers)
    assert stored.computed == 40
    np.testing.assert_array_equal(values(stored), expected(twice))


def test_an_image_has_the_same_bits_in_any_company(pictures, folder, extracted, values, tiny):
    """A convolution whose sums may depend on how many images there are; dropout, if it were on, would show too."""

    class Net(tiny):
        size = 8

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5), torch.nn.Dropout())

        def forward(self, pixels):
            return self.layers(pixels.float()).mean((2, 3))

    whole = values(extracted(pictures, folder / "whole", Net(), dtype="float32"))
    for count in (1, 3, 17):
        some = values(extracted(pictures[-count:], folder / str(count), Net(), dtype="float32"))
        np.testing.assert_array_equal(some, whole[-count:])


def test_squares_of_another_side_for_a_backbone_that_reads_them(pictures, folder, values, tiny):
    class Wide(tiny):
        side, any_side = 32, True

    network, crops = Wide(), Crops(name="whole", side=64)
    making = FeatureStoreSpec.for_backbone("tiny", network, crops)
    stored = extract(pictures[:3], network, making, folder, workers=0, device=CPU)
    squares = [torch.from_numpy(fixed_crops(picture.load(), crops, 64)) for picture in pictures[:3]]
    assert squares[0].shape == (1, 3, 64, 64)
    np.testing.assert_allclose(values(stored), torch.cat([network(each).detach() for each in squares]), atol=1e-6)
    assert len(stored.enlarged) == 3
    grid = FeatureStoreSpec.for_backbone("tiny", network, crops, regions=Regions())
    stored = extract(pictures[:3], network, grid, folder / "grid", workers=0, device=CPU)
    assert stored.features.shape == (81, 3)  # nine windows of seven pixels fit into 64, four into 32
    cells = torch.cat([network.regions(each).detach() for each in squares])
    np.testing.assert_allclose(values(stored), cells, atol=1e-6)
    fixed = tiny()
    fixed.name = "tiny"
    with pytest.raises(RecipeError, match="side = 64: tiny reads squares of 14 only"):
        extract(
            pictures,
            fixed,
            FeatureStoreSpec.for_backbone("tiny", fixed, crops),
            folder / "fixed",
            workers=0,
            device=CPU,
        )


SEARCH = Regions(method="selective-search", count=3)


def two_boxes(regions):
    """Stands for OpenCV: two boxes that depend on the photo, and one place that stays empty."""

    def propose(photo):
        red, green, blue = (float(value) / 256 for value in photo.resize((1, 1)).getpixel((0, 0)))
        return np.array([[0, 0, 1, 1], [red / 2, green / 2, 0.5 + blue / 2, 1], [0, 0, 0, 0]], np.float32)

    return propose


@pytest.fixture
def proposing(monkeypatch):
    monkeypatch.setattr(proposals, "proposer", two_boxes)


def test_proposals_are_stored_with_their_boxes(
    pictures, folder, proposing, part_a_batch, extracted, expected, values, tiny
):
    broken = folder.parent / "broken.png"
    broken.write_bytes(b"nothing")
    given = [*pictures[:20], PictureFile(broken), *pictures[20:]]
    stored = extracted(given, folder, crops="whole", regions=SEARCH)
    assert len(list(folder.glob("part-*.boxes.npy"))) == 3
    assert stored.readable.tolist() == [*range(20), *range(21, 41)]
    boxes = stored.boxes[np.arange(40)]
    np.testing.assert_array_equal(boxes, [two_boxes(SEARCH)(picture.load()) for picture in pictures])
    assert len(np.unique(boxes[:, 1], axis=0)) > 30  # they differ from photo to photo
    grids = torch.from_numpy(expected(pictures, crops="whole", regions=Regions()))  # (40, 4, 3)
    maps = grids.transpose(1, 2).reshape(40, 3, 2, 2)
    np.testing.assert_allclose(values(stored), roi_align(maps, torch.from_numpy(boxes)), atol=1e-6)
    assert not values(stored)[:, 2].any()
    network = tiny()
    again = extracted(given[::-1], folder, network, crops="whole", regions=SEARCH)
    assert network.shown == again.computed == 0
    np.testing.assert_array_equal(again.boxes[np.arange(40)], boxes[::-1])


def test_a_grid_has_no_stored_boxes(pictures, folder, extracted):
    assert extracted(pictures[:2], folder, regions=Regions()).boxes is None
    assert not list(folder.glob("*.boxes.npy"))


def test_proposals_of_a_crop_are_refused_before_any_work(pictures, folder, extracted):
    with pytest.raises(RecipeError, match=r"selective-search needs crops = \"whole\", not '1C'"):
        extracted(pictures, folder, crops="1C", regions=SEARCH)
    assert not folder.exists()
