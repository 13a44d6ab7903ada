import numpy as np
import pytest
from PIL import Image

from diptych.data.images import PictureFile
from diptych.data.scenes import make_scenes
from diptych.errors import DataError, ImageError
from diptych.features.crops import Crops, fixed_crops, random_crop
from diptych.features.reader import CropReader, ImageInput, image_reader, picture_reader


class Broken:
    def load(self):
        raise ImageError("broken.jpg: truncated")


@pytest.fixture(scope="module")
def pictures():
    drawn = list(make_scenes(train=4, val=1, test=1).split("train").pictures)
    return [drawn[0], Broken(), *drawn[1:]]


@pytest.mark.parametrize("name", ["1C", "10C"])
def test_crops_of_each_image_and_nobody_moves_up(pictures, name):
    crops = Crops(name=name)
    values, readable = CropReader(pictures, crops, 28).read(np.array([3, 1, 0]))
    assert readable.tolist() == [True, False, True]
    assert values.shape == (2, crops.count, 3, 28, 28)
    assert (values[0] == fixed_crops(pictures[3].load(), crops, 28)).all()
    assert (values[1] == fixed_crops(pictures[0].load(), crops, 28)).all()


def test_random_crops_depend_on_the_draw_and_the_image_alone(pictures):
    reader = CropReader(pictures, Crops(), 28, random=True)
    values, readable = reader.read(np.array([0, 1, 2]), (7, 1, 3, 0))
    assert readable.tolist() == [True, False, True]
    assert values.shape == (2, 1, 3, 28, 28)
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([7, 1, 3, 0, 2])))
    assert (values[1, 0] == random_crop(pictures[2].load(), "square", 28, random)).all()
    alone, _ = reader.read(np.array([2]), (7, 1, 3, 0))
    assert (alone[0] == values[1]).all()
    draws = {reader.read(np.array([2]), (7, 1, 3, step))[0].tobytes() for step in range(8)}
    assert len(draws) > 4
    assert reader.skipped == {1: "broken.jpg: truncated"}


class Flaky:
    """Cannot be read the first time."""

    def __init__(self, picture):
        self.picture, self.failed = picture, False

    def load(self):
        if not self.failed:
            self.failed = True
            raise ImageError("flaky.jpg: gone for a moment")
        return self.picture.load()


@pytest.mark.parametrize("random", [False, True])
def test_what_failed_once_stays_out_and_nobody_moves_up(pictures, random):
    flaky = [pictures[0], Flaky(pictures[2]), pictures[3]]
    reader = CropReader(flaky, Crops(), 28, random)
    first, readable = reader.read(np.array([0, 1, 2]), (1,))
    again, still = reader.read(np.array([0, 1, 2]), (1,))
    assert readable.tolist() == still.tolist() == [True, False, True]
    assert np.array_equal(first, again)


def test_nothing_readable_is_an_empty_batch(pictures):
    values, readable = CropReader(pictures, Crops(), 28).read(np.array([1]))
    assert values.shape == (0, 1, 3, 28, 28)
    assert not readable.any()


def test_a_photo_smaller_than_the_crop_is_enlarged(tmp_path):
    Image.new("RGB", (9, 5), "red").save(tmp_path / "tiny.png")
    reader = CropReader([PictureFile(tmp_path / "tiny.png")], Crops(), 28)
    values, readable = reader.read(np.array([0]))
    assert readable.all()
    assert (values[0, 0, 0] == 255).all()


def test_a_model_and_a_corpus_that_do_not_fit():
    drawn = make_scenes(train=2, val=1, test=1)
    with pytest.raises(DataError, match="has pictures, and the run reads features that came with its data"):
        image_reader(drawn, ImageInput("features", (8,)))
    with pytest.raises(DataError, match="the id of an image"):
        picture_reader(drawn.pictures, ImageInput("features", (8,)))
