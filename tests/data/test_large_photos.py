"""Photos above the limit for decoding whole; the limits are lowered, so that the photos of the tests are large."""

import io
import threading

import numpy as np
import pytest
from PIL import Image

from diptych.data import large_photos
from diptych.data.images import decode, decode_bytes
from diptych.data.large_photos import MAX_PILLOW_PIXELS
from diptych.errors import ImageError


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    monkeypatch.setattr(large_photos, "MAX_PIXELS", 10_000)
    monkeypatch.setattr(large_photos, "MAX_WHOLE_PIXELS", 100_000)
    monkeypatch.setattr(large_photos, "MAX_PILLOW_PIXELS", 80_000)
    monkeypatch.setattr(large_photos, "MAX_JPEG_PIXELS", 400_000)
    monkeypatch.setattr(large_photos, "MAX_COEFFICIENT_BYTES", 300_000)
    monkeypatch.setattr(large_photos, "_STRIP_PIXELS", 3_000)


def gradient(width, height):
    across, down = np.linspace(0, 255, width), np.linspace(0, 255, height)
    channels = np.broadcast_arrays(across[None], down[:, None], np.float64(128))
    return Image.fromarray(np.stack(channels, -1).astype(np.uint8))


def saved(path, image, **options):
    image.save(path, **options)
    return path


def resembles(image, original):
    assert image.mode == "RGB"
    assert abs(image.width / image.height - original.width / original.height) < 0.05
    expected = np.asarray(original.convert("RGB").resize(image.size, Image.Resampling.BOX), int)
    assert np.abs(np.asarray(image, int) - expected).max() <= 24


@pytest.mark.parametrize(("width", "height"), [(101, 100), (300, 200), (997, 401)])
def test_large_jpegs_are_reduced_while_they_are_decoded(tmp_path, width, height):
    original = gradient(width, height)
    path = saved(tmp_path / "a.jpg", original, quality=95)
    image = decode(path)
    assert 10_000 / 8 < image.width * image.height <= 10_000
    resembles(image, original)


def test_a_large_jpeg_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = decode(saved(tmp_path / "a.jpg", gradient(300, 200), exif=exif, quality=95))
    resembles(image, gradient(300, 200).transpose(Image.Transpose.ROTATE_270))


def test_a_large_jpeg_may_be_needed_smaller_still(tmp_path):
    image = decode(saved(tmp_path / "a.jpg", gradient(600, 400), quality=95), 20)
    assert image.size == (75, 50)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "I;16", "CMYK"])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_other_large_photos_are_reduced_strip_by_strip(tmp_path, mode, suffix):
    if (mode, suffix) == ("CMYK", "png"):
        pytest.skip("PNG has no CMYK")
    original = gradient(301, 197)
    if mode == "I;16":
        grey = np.asarray(original.convert("L"), np.uint16) * 257
        image, original = Image.fromarray(grey), original.convert("L")
    elif mode == "1":
        original = image = original.convert("L").point(lambda value: 255 * (value > 100)).convert("1")
    else:
        original = original.convert("L") if mode == "L" else original
        image = original.quantize(256) if mode == "P" else original.convert(mode)
    decoded = decode(saved(tmp_path / f"a.{suffix}", image))
    assert decoded.size == (101, 66)
    if mode != "1":
        resembles(decoded, original)
    elif mode == "1":
        assert abs(np.asarray(decoded).mean() - np.asarray(original).mean() * 255) < 5


def test_another_large_photo_is_reduced_as_far_as_its_size_allows(tmp_path):
    path = saved(tmp_path / "a.png", gradient(400, 210))
    assert decode(path, 20).size == (80, 42)
    resembles(decode(path, 20), gradient(400, 210))
    assert decode(path, 200).size == (134, 70)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_a_large_tiff_is_turned_once(tmp_path, orientation, compression):
    turned = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_270, 8: Image.Transpose.ROTATE_90}
    original = gradient(300, 200)
    path = saved(tmp_path / "a.tif", original, compression=compression, tiffinfo={0x0112: orientation})
    upright = original.transpose(turned[orientation]) if orientation in turned else original
    resembles(decode(path), upright)


def test_transparency_of_a_large_photo_becomes_white(tmp_path):
    image = decode(saved(tmp_path / "a.png", Image.new("RGBA", (200, 200), (0, 0, 0, 0))))
    assert image.getextrema() == ((255, 255),) * 3


def test_each_format_has_a_limit(tmp_path):
    decode(saved(tmp_path / "a.png", Image.new("L", (1000, 100))))
    with pytest.raises(
        ImageError, match=r"b.png: 1001 x 100 pixels, above the limit of 100,000 pixels; save it smaller"
    ):
        decode(saved(tmp_path / "b.png", Image.new("L", (1001, 100))))
    decode(saved(tmp_path / "a.jpg", Image.new("L", (1000, 400))))
    with pytest.raises(ImageError, match=r"b.tif: 801 x 100 pixels, above the limit of 80,000 pixels"):
        decode(saved(tmp_path / "b.tif", Image.new("L", (801, 100))))
    with pytest.raises(ImageError, match=r"b.jpg: 1001 x 400 pixels, above the limit of 400,000 pixels"):
        decode(saved(tmp_path / "b.jpg", Image.new("L", (1001, 400))))


def test_a_callers_limit_is_not_exceeded():
    content = io.BytesIO()
    Image.new("RGB", (100, 60)).save(content, "JPEG")
    assert decode_bytes(content.getvalue(), "it", limit=6000).size == (100, 60)
    with pytest.raises(ImageError, match=r"it: 100 x 60 pixels, above the limit of 5,999 pixels"):
        decode_bytes(content.getvalue(), "it", limit=5999)


@pytest.mark.parametrize(("subsampling", "most"), [("4:4:4", 50_000), ("4:2:0", 100_000)])
def test_progressive_jpegs_are_limited_by_the_memory_for_their_coefficients(tmp_path, subsampling, most):
    options = {"progressive": True, "subsampling": subsampling}
    decode(saved(tmp_path / "a.jpg", Image.new("RGB", (100, most // 100)), **options))
    with pytest.raises(ImageError, match=r"as a progressive JPEG, which takes 0.0 GB to decode, above the limit"):
        decode(saved(tmp_path / "b.jpg", Image.new("RGB", (100, most // 100 + 1)), **options))


def test_pillows_own_limit_does_not_apply_and_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for suffix in ("jpg", "png", "bmp", "jp2"):
        assert decode(saved(tmp_path / f"a.{suffix}", gradient(90, 80))).size == (90, 80)
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_large_photos_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    path = saved(tmp_path / "a.png", gradient(300, 200))
    at_once, most, lock = 0, 0, threading.Lock()
    reduced = large_photos._reduced

    def counted(image, factor):
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        result = reduced(image, factor)
        with lock:
            at_once -= 1
        return result

    monkeypatch.setattr(large_photos, "_reduced", counted)
    threads = [threading.Thread(target=decode, args=(path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_the_limits_suit_pillow():
    assert MAX_PILLOW_PIXELS <= 2 * Image.MAX_IMAGE_PIXELS


def test_what_pillow_itself_refuses_is_an_image_error(monkeypatch):
    large = io.BytesIO()
    Image.new("L", (300, 300)).save(large, "WEBP")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ImageError, match=r"it: too large, above the limit of 80,000 pixels"):
        decode_bytes(large.getvalue(), "it")
