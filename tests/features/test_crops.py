import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from diptych.features.crops import (
    Crops,
    crops_for,
    decode_size,
    fixed_crops,
    random_crop,
    random_window,
    resized_side,
    too_small,
)

SIZES = st.tuples(st.integers(1, 90), st.integers(1, 90))
NAMES = ["1C", "10C", "whole", "mirrored", "views", "scales"]
TEN = Crops(name="10C")


def gradient(width, height):
    """Each pixel says where it is: red from left to right, green from top to bottom, blue a checkerboard."""
    down, across = np.mgrid[0:height, 0:width]
    red, green = across * 255 // max(width - 1, 1), down * 255 // max(height - 1, 1)
    return Image.fromarray(np.stack([red, green, (down + across) % 2 * 255], 2).astype(np.uint8))


def square(image, side):
    """The resized square, by PIL, as (3, height, width)."""
    target = resized_side(side)
    return np.asarray(image.resize((target, target), Image.Resampling.BILINEAR)).transpose(2, 0, 1)


@pytest.mark.parametrize(("side", "resized"), [(224, 256), (240, 274), (260, 297), (280, 320), (300, 343), (1, 1)])
def test_the_resized_side_keeps_the_papers_ratio(side, resized):
    assert resized_side(side) == resized


def test_one_crop_is_the_centre():
    image = gradient(500, 375)
    assert np.array_equal(fixed_crops(image, Crops(), 224), square(image, 224)[None, :, 16:240, 16:240])


def test_views_are_the_whole_photo_its_mirror_and_both_centres():
    image = gradient(500, 375)
    views = fixed_crops(image, Crops(name="views"), 224)
    whole = np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    short = np.asarray(image.resize((341, 256), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    expected = [whole, whole[:, :, ::-1], square(image, 224)[:, 16:240, 16:240], short[:, 16:240, 58:282]]
    assert np.array_equal(views, np.stack(expected))


def test_scales_are_the_first_and_the_last_of_the_views():
    image = gradient(500, 375)
    views = fixed_crops(image, Crops(name="views"), 224)
    assert np.array_equal(fixed_crops(image, Crops(name="scales"), 224), views[[0, 3]])


def test_only_views_have_crops_that_take_less_work():
    for name in NAMES:
        crops = Crops(name=name, side=96)
        assert crops_for("best", crops) == (crops, "best")
        fast = (crops.model_copy(update={"name": "scales"}), "fast") if name == "views" else (crops, "best")
        assert crops_for("fast", crops) == fast
    assert crops_for("fast", None) == (None, "best")


def test_ten_crops_are_corners_centre_and_their_mirrors_in_this_order():
    whole = square(gradient(500, 375), 224)
    top_left, top_right = whole[:, :224, :224], whole[:, :224, 32:]
    bottom_left, bottom_right = whole[:, 32:, :224], whole[:, 32:, 32:]
    five = [top_left, top_right, bottom_left, bottom_right, whole[:, 16:240, 16:240]]
    expected = np.stack([*five, *(crop[:, :, ::-1] for crop in five)])
    crops = fixed_crops(gradient(500, 375), TEN, 224)
    assert np.array_equal(crops, expected)
    assert len({crop.tobytes() for crop in crops}) == 10
    assert crops.flags.c_contiguous


def test_the_whole_photo_is_squashed_and_mirrored():
    image = gradient(50, 30)
    squashed = np.asarray(image.resize((28, 28), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    for resize in ("square", "short"):
        assert np.array_equal(fixed_crops(image, Crops(name="whole", resize=resize), 28), squashed[None])
        both = fixed_crops(image, Crops(name="mirrored", resize=resize), 28)
        assert np.array_equal(both, np.stack([squashed, squashed[:, :, ::-1]]))


@given(SIZES, st.sampled_from([7, 14, 21]))
@settings(max_examples=40)
def test_short_resizes_as_torchvision_does(torchvision, size, side):
    transforms = torchvision.transforms
    image = gradient(*size)
    if max(size) > 32 * min(size):
        return
    resize = transforms.Resize(resized_side(side))
    crop = transforms.CenterCrop(side)(resize(image))
    assert np.array_equal(fixed_crops(image, Crops(resize="short"), side)[0], np.asarray(crop).transpose(2, 0, 1))
    five = np.stack([np.asarray(crop).transpose(2, 0, 1) for crop in transforms.FiveCrop(side)(resize(image))])
    ten = fixed_crops(image, Crops(name="10C", resize="short"), side)
    assert np.array_equal(ten[:5], five)
    assert np.array_equal(ten[5:], five[..., ::-1])


@given(
    SIZES,
    st.sampled_from(NAMES),
    st.sampled_from(["square", "short"]),
    st.integers(1, 40),
)
def test_every_size_of_photo_has_crops(size, name, resize, side):
    crops = Crops(name=name, resize=resize)
    pixels = fixed_crops(gradient(*size), crops, side)
    assert pixels.shape == (crops.count, 3, side, side)
    assert pixels.dtype == np.uint8
    for draw in (random_crop, random_window):
        pixels = draw(gradient(*size), resize, side, np.random.default_rng(0))
        assert pixels.shape == (3, side, side)
        assert pixels.dtype == np.uint8
        torch.from_numpy(pixels).zero_()  # neither negative strides nor PIL's own memory


def test_a_thin_strip_does_not_fill_the_memory(monkeypatch):
    resize, areas = Image.Image.resize, []

    def watched(image, size, *arguments, **options):
        areas.append(size[0] * size[1])
        return resize(image, size, *arguments, **options)

    monkeypatch.setattr(Image.Image, "resize", watched)
    strip = gradient(1, 20_000)
    assert fixed_crops(strip, Crops(name="10C", resize="short"), 28).shape == (10, 3, 28, 28)
    random_crop(strip, "short", 28, np.random.default_rng(0))
    random_window(strip, "short", 28, np.random.default_rng(0))
    assert max(areas) <= 32 * 32 * 32


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (64, 128)])
@pytest.mark.parametrize("resize", ["square", "short"])
def test_strips_and_tiny_photos_have_crops_of_every_kind(size, resize):
    speck = Image.new("RGB", size, (200, 10, 90))
    random = np.random.default_rng(0)
    kinds = [fixed_crops(speck, Crops(name=name, resize=resize), 224) for name in ("mirrored", "views", "10C")]
    kinds += [draw(speck, resize, 224, random)[None] for draw in (random_crop, random_window)]
    for crops in kinds:
        assert crops.shape[1:] == (3, 224, 224)
        assert (crops == np.array([200, 10, 90], np.uint8)[:, None, None]).all()


@given(SIZES, st.integers(1, 40), st.integers(0, 99))
def test_with_square_a_random_window_equals_the_random_crop(size, side, seed):
    image = gradient(*size)
    crop, window = (draw(image, "square", side, np.random.default_rng(seed)) for draw in (random_crop, random_window))
    assert np.array_equal(crop, window)


def test_random_windows_are_uniform_and_mirrored_half_of_the_time():
    resized = np.asarray(gradient(42, 36).resize((37, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    places = [(top, left) for top in range(5) for left in range(10)]
    windows = {}
    for place in places:
        window = resized[:, place[0] : place[0] + 28, place[1] : place[1] + 28]
        windows[window.tobytes()], windows[window[..., ::-1].tobytes()] = (place, False), (place, True)
    assert len(windows) == 100
    random = np.random.default_rng(1)
    seen = [windows[random_window(gradient(42, 36), "short", 28, random).tobytes()] for _ in range(5000)]
    counts = [sum(place == other for other, _ in seen) for place in places]
    assert min(counts) > 60
    assert max(counts) < 150
    assert 0.47 < sum(mirrored for _, mirrored in seen) / len(seen) < 0.53


@pytest.mark.parametrize("resize", ["square", "short"])
@pytest.mark.parametrize("random_crop", [random_crop, random_window], ids=["RC", "window"])
def test_a_random_crop_depends_only_on_the_photo_and_the_generator(resize, random_crop):
    image = gradient(60, 40)
    kept = image.tobytes()
    first = random_crop(image, resize, 28, np.random.default_rng(3))
    np.random.seed(9)
    torch.manual_seed(9)
    assert np.array_equal(first, random_crop(image, resize, 28, np.random.default_rng(3)))
    assert not np.array_equal(first, random_crop(image, resize, 28, np.random.default_rng(4)))
    assert image.tobytes() == kept


def test_random_crops_of_the_square_are_uniform_and_mirrored_half_of_the_time():
    whole = square(gradient(50, 50), 28)  # 32 x 32: five places each way
    windows = {}
    for top in range(5):
        for left in range(5):
            window = whole[:, top : top + 28, left : left + 28]
            windows[window.tobytes()] = (top, left, False)
            windows[window[:, :, ::-1].tobytes()] = (top, left, True)
    assert len(windows) == 50
    random = np.random.default_rng(0)
    seen = [windows[random_crop(gradient(50, 50), "square", 28, random).tobytes()] for _ in range(3000)]
    counts = np.unique(np.array(seen)[:, :2], axis=0, return_counts=True)[1]
    assert len(counts) == 25
    assert counts.min() > 70  # 120 expected, four deviations are 43
    assert counts.max() < 170
    assert 1390 < sum(mirrored for _, _, mirrored in seen) < 1610


def test_random_crops_of_the_photo_vary_in_area_and_ratio():
    """Red and green are linear in a gradient, so that a crop's mean slopes tell its box."""
    random = np.random.default_rng(0)
    image = gradient(256, 256)
    areas, ratios, mirrored = [], [], 0
    for _ in range(600):
        red, green, _ = random_crop(image, "short", 32, random).astype(float)
        across, down = (red[:, -1] - red[:, 0]).mean() / 31 * 32, (green[-1] - green[0]).mean() / 31 * 32
        mirrored += across < 0
        areas.append(abs(across) * down / 256**2)
        ratios.append(abs(across) / down)
    assert 250 < mirrored < 350
    assert 0.06 < min(areas) < 0.12
    assert 0.9 < max(areas) < 1.05
    assert 0.45 < np.mean(areas) < 0.6
    assert 0.7 < min(ratios) < 0.8
    assert 1.25 < max(ratios) < 1.43
    assert abs(np.log(ratios).mean()) < 0.03  # wide as often as high


def test_a_random_crop_does_not_look_beyond_its_box(monkeypatch):
    boxes, cut = [], Image.Image.crop

    def watched(image, box):
        boxes.append(box)
        return cut(image, box)

    image = gradient(70, 50)
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "crop", watched)
        crop = random_crop(image, "short", 28, np.random.default_rng(1))
    left, top, right, bottom = boxes[0]
    assert 0 <= left < right <= 70
    assert 0 <= top < bottom <= 50
    plain = np.asarray(image.crop(boxes[0]).resize((28, 28), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.array_equal(crop, plain) or np.array_equal(crop, plain[..., ::-1])


@pytest.mark.parametrize("size", [(300, 10), (10, 300)])
def test_a_photo_too_thin_for_a_random_crop_is_cropped_in_its_centre(size):
    class Largest:
        """A generator that always asks for the whole area."""

        def uniform(self, low, high):
            return high

        def random(self):
            return 0.9

    crop = random_crop(gradient(*size), "short", 8, Largest())
    left, top = (size[0] - 10) // 2, (size[1] - 10) // 2
    centre = gradient(*size).crop((left, top, left + 10, top + 10)).resize((8, 8), Image.Resampling.BILINEAR)
    assert np.array_equal(crop, np.asarray(centre).transpose(2, 0, 1))


@given(SIZES, st.integers(1, 100))
def test_a_photo_is_too_small_if_one_side_is(size, side):
    assert too_small(size, side) == (size[0] < side or size[1] < side)


def test_crops_are_strict_settings():
    assert (Crops().name, Crops().resize, Crops().count, TEN.count) == ("1C", "square", 1, 10)
    for wrong in ({"name": "5C"}, {"resize": "long"}, {"side": 225}, {"sides": 224}):
        with pytest.raises(ValidationError):
            Crops.model_validate(wrong)


def test_photos_are_decoded_for_the_square_that_crops_are_taken_from():
    assert decode_size(224, Crops()) == resized_side(224) == 256
    assert decode_size(32, None) == 32


@given(size=SIZES, side=st.integers(8, 40))
@settings(max_examples=40)
def test_the_centre_is_that_of_torchvision(torchvision, size, side):
    image = gradient(*size)
    if max(size) > 32 * min(size):
        return  # such a strip is squashed first
    transforms = torchvision.transforms
    method = transforms.InterpolationMode.BICUBIC
    theirs = transforms.Compose([transforms.Resize(side, interpolation=method), transforms.CenterCrop(side)])
    ours = fixed_crops(image, Crops(name="centre", interpolation="bicubic"), side)
    assert np.array_equal(ours, np.asarray(theirs(image)).transpose(2, 0, 1)[None])


def test_half_a_pixel_is_rounded_to_an_even_number_or_down():
    image = gradient(35, 32)  # three pixels are cut off
    pixels = np.asarray(image).transpose(2, 0, 1)[None]
    assert np.array_equal(fixed_crops(image, Crops(name="centre"), 32), pixels[..., 2:34])
    assert np.array_equal(fixed_crops(image, Crops(name="centre", rounding="down"), 32), pixels[..., 1:33])


def test_the_whole_photo_is_squashed_by_either_interpolation():
    image = gradient(50, 37)
    for name, method in (("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)):
        expected = np.asarray(image.resize((32, 32), method)).transpose(2, 0, 1)[None]
        assert np.array_equal(fixed_crops(image, Crops(name="whole", interpolation=name), 32), expected)


def test_photos_may_be_decoded_in_full():
    assert decode_size(224, Crops(full_size=True)) is None
    assert decode_size(224, Crops()) == 256
    assert decode_size(224, None) == 224
