import io

import numpy as np
import pytest
from PIL import Image

from diptych.data import raw_preview
from diptych.data.images import decode, decode_bytes, read_photo
from diptych.errors import ImageError
from support.raw_photos import MAKERS, SENSOR, Tiff, camera_tags, cr3, jpeg, nef

CAMERAS = {
    "nef": "Nikon D750",
    "cr2": "Canon EOS R",
    "dng": "Apple iPhone 15 Pro",
    "rw2": "Panasonic DC-G9",
    "orf": "Olympus E-M1MarkIII",
    "raf": "Fujifilm X-T3",
    "cr3": "Canon EOS R6",
}


def is_near(image, at, colour):
    return np.abs(np.array(image.getpixel(at), int) - colour).max() < 30


@pytest.mark.parametrize("kind", MAKERS)
def test_a_raw_photo_is_shown_by_its_preview(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(MAKERS[kind](jpeg(800, 600)))
    image = decode(path)
    assert (image.mode, image.size) == ("RGB", (800, 600))
    assert is_near(image, (100, 300), (255, 0, 0))
    assert is_near(image, (700, 300), (255, 255, 255))


@pytest.mark.parametrize("kind", MAKERS)
def test_orientation_camera_day_and_place_are_those_of_the_raw_photo(kind):
    read = read_photo(MAKERS[kind](jpeg(800, 600), orientation=6), "it")
    assert read.image.size == (600, 800)
    assert is_near(read.image, (300, 100), (255, 0, 0))  # what was left is above
    header = read.header
    assert (header.width, header.height, header.camera) == (600, 800, CAMERAS[kind])
    assert (header.taken, header.latitude, header.longitude) == ("2026-11-16", 48.1375, 11.575)


def test_the_orientation_of_the_raw_photo_counts_more_than_that_of_its_preview():
    exif = Image.Exif()
    exif[0x0112] = 8
    assert read_photo(nef(jpeg(800, 600, exif=exif), orientation=1), "it").image.size == (800, 600)


@pytest.mark.parametrize("magic", [b"II*\0", b"MM\0*"])
def test_both_byte_orders_are_read(magic):
    header = read_photo(nef(jpeg(), magic=magic, orientation=3), "it").header
    assert (header.camera, header.taken, header.latitude) == ("Nikon D750", "2026-11-16", 48.1375)


def test_the_name_of_a_file_does_not_matter(tmp_path):
    for name in ("a.jpg", "a.tif", "a"):
        (tmp_path / name).write_bytes(nef(jpeg(700, 500)))
        assert decode(tmp_path / name).size == (700, 500)
    jpeg_in_disguise = tmp_path / "a.nef"
    jpeg_in_disguise.write_bytes(jpeg(90, 60))
    assert decode(jpeg_in_disguise).size == (90, 60)


def test_a_preview_is_decoded_at_the_size_that_is_needed():
    assert decode_bytes(nef(jpeg(1600, 1200)), "it", 100).size == (400, 300)


def test_the_full_picture_of_a_canon_is_preferred_to_its_preview():
    assert decode_bytes(cr3(jpeg(1620, 1080), full=jpeg(2000, 1500)), "it").size == (2000, 1500)


def test_an_ordinary_tiff_is_no_raw_photo():
    content = io.BytesIO()
    Image.new("RGB", (30, 20), "red").save(content, "TIFF", compression="jpeg")
    assert not raw_preview.is_raw(io.BytesIO(content.getvalue()), content.getvalue()[:64])
    assert decode_bytes(content.getvalue(), "it").size == (30, 20)


def without_preview(kind):
    whole = MAKERS[kind](b"\0" * 1000)
    return whole.replace(jpeg(160, 120, "black"), b"\0" * len(jpeg(160, 120, "black")))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_raw_photo_without_preview_says_so(kind):
    with pytest.raises(ImageError, match=r"^it: a RAW photo without an embedded preview; export it as JPEG$"):
        decode_bytes(without_preview(kind), "it")


def test_a_thumbnail_is_better_than_nothing():
    assert decode_bytes(nef(jpeg(90, 60)), "it").size in ((90, 60), (160, 120))


def test_lossless_data_of_the_sensor_is_no_preview():
    lossless = b"\xff\xd8\xff\xc3\0\x0b\x0e\x20\0\x20\0\1\1\x11\0" + SENSOR
    with pytest.raises(ImageError, match=r"without an embedded preview"):
        decode_bytes(without_preview("orf") + lossless, "it")


def test_a_preview_beyond_the_end_of_a_truncated_file_is_not_used():
    tiff = Tiff()
    first, second = jpeg(700, 500), jpeg(1400, 1000)
    at = tiff.add(first)
    below = tiff.directory({0x0201: at, 0x0202: len(first)})
    main = camera_tags(tiff) | {0x0106: 32803, 0x014A: below, 0x0201: len(tiff.content) + 3000, 0x0202: len(second)}
    whole = tiff.finish(tiff.directory(main))
    assert decode_bytes(whole, "it").size == (700, 500)


def test_a_file_that_ends_before_its_only_preview_is_cut_short():
    tiff = Tiff()
    main = camera_tags(tiff) | {0x0106: 32803, 0x0201: 5000, 0x0202: 9000}
    with pytest.raises(ImageError, match=r"^it: a RAW photo that is damaged or cut short; copy it again$"):
        decode_bytes(tiff.finish(tiff.directory(main)), "it")


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("kept", [0.001, 0.01, 0.3, 0.6, 0.9])
def test_a_truncated_file_gives_a_picture_or_a_reason(kind, kept):
    whole = MAKERS[kind](jpeg(800, 600))
    try:
        assert decode_bytes(whole[: int(len(whole) * kept)], "it").mode == "RGB"
    except ImageError as reason:
        assert str(reason).startswith("it: ")  # noqa: PT017


@pytest.mark.parametrize("kind", MAKERS)
def test_any_damage_gives_a_picture_or_a_reason(kind):
    whole = MAKERS[kind](jpeg(80, 60))
    for seed in range(40):
        rng = np.random.default_rng(seed)
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 30):
            damaged[at] = rng.choice([0, 1, 255, rng.integers(256)])
        try:
            assert decode_bytes(bytes(damaged), "it").mode == "RGB"
        except ImageError as reason:
            assert str(reason).startswith("it: ")  # noqa: PT017


def test_an_absurd_size_of_the_preview_is_refused():
    preview = jpeg(80, 60)
    at = preview.index(b"\xff\xc0") + 5
    absurd = preview[:at] + b"\xff\xff\xff\xff" + preview[at + 4 :]
    with pytest.raises(ImageError, match=r"65535 x 65535 pixels, above the limit of 1,000,000,000 pixels"):
        decode_bytes(nef(absurd), "it")
