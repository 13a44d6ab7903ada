import numpy as np
import pytest
from pydantic import ValidationError

from diptych.errors import DataError, RecipeError
from diptych.features.crops import Crops, fixed_crops
from diptych.features.regions import Regions, check_whole_photo, forest_file, grid_boxes
from diptych.settings import first_error


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "edge-boxes"}, "model = None: edge-boxes needs the file of OpenCV's structured forest"),
        ({"method": "grid", "model": "x.yml"}, "model = 'x.yml': a structured forest belongs to edge-boxes"),
        ({"method": "boxes"}, "method = 'boxes'"),
        ({"method": "selective-search", "count": 0}, "count = 0"),
        ({"cuont": 3}, "unknown key 'cuont'; did you mean 'count'"),
    ],
    ids=["no forest", "forest of a grid", "method", "count", "key"],
)
def test_invalid_settings_are_refused(given, words):
    with pytest.raises(ValidationError) as raised:
        Regions(**given)
    assert words in first_error(raised.value, Regions)


def test_labels_and_kinds_of_regions():
    assert (Regions().label, Regions(count=7).label, Regions().are_boxes) == ("grid", "grid", False)
    crops = Regions(method="crops", count=7)
    assert (crops.label, crops.are_boxes, crops.from_map) == ("crops", False, False)
    search = Regions(method="selective-search", count=7)
    assert (search.label, search.are_boxes) == ("selective-search-7", True)
    assert Regions().from_map
    assert search.from_map


def test_a_missing_forest_is_refused(tmp_path):
    assert forest_file(Regions()) is None
    with pytest.raises(DataError, match=r"gone\.yml: no such file of a structured forest"):
        forest_file(Regions(method="edge-boxes", model=str(tmp_path / "gone.yml")))


def test_boxes_need_the_whole_photo():
    search = Regions(method="selective-search")
    check_whole_photo(search, Crops(name="whole"))
    check_whole_photo(Regions(), Crops(name="1C"))
    check_whole_photo(None, Crops(name="10C"))
    check_whole_photo(Regions(method="crops"), Crops(name="10C"))
    with pytest.raises(RecipeError, match="selective-search needs crops = \"whole\", not '1C'"):
        check_whole_photo(search, Crops(name="1C"))


@pytest.mark.parametrize("name", ["whole", "1C"])
@pytest.mark.parametrize("size", [(300, 200), (123, 457)], ids=["wide", "high"])
def test_the_box_of_a_cell_covers_the_pixels_it_comes_from(name, size):
    """Each cell of a crop of a smooth photo has the mean colour of its box of the photo."""
    from PIL import Image

    width, height = size
    down, across = np.mgrid[0:height, 0:width]
    ramps = np.stack([across * 255 / width, down * 255 / height, np.zeros((height, width))], axis=2)
    crop = fixed_crops(Image.fromarray(ramps.astype(np.uint8)), Crops(name=name), 96)[0]  # (3, 96, 96)
    cells = crop.reshape(3, 3, 32, 3, 32).mean((2, 4))  # (3, rows, columns)
    boxes = grid_boxes(9, Crops(name=name), 96)
    assert boxes.shape == (9, 4)
    for number, (left, top, right, bottom) in enumerate(boxes):
        place = divmod(number, 3)
        assert cells[0][place] == pytest.approx((left + right) / 2 * 255, abs=2)
        assert cells[1][place] == pytest.approx((top + bottom) / 2 * 255, abs=2)
    assert boxes[0].tolist() == pytest.approx(
        [0, 0, 1 / 3, 1 / 3] if name == "whole" else [7 / 110, 7 / 110, *[39 / 110] * 2]
    )


@pytest.mark.parametrize("crops", [Crops(name="10C"), Crops(name="mirrored"), Crops(resize="short")])
def test_cells_without_a_fixed_position_have_no_boxes(crops):
    with pytest.raises(RecipeError, match="have no fixed position"):
        grid_boxes(9, crops, 96)
