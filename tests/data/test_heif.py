import io
import os
import subprocess
import sys

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from diptych.data.heif import is_heif
from diptych.data.images import decode, decode_bytes, read_photo
from diptych.errors import ImageError, MissingPackageError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def four_corners(mode="RGB"):
    """Landscape, red top left, green top right, blue bottom left, white bottom right."""
    image = Image.new(mode, (128, 64))
    for at, colour in (((0, 0), RED), ((64, 0), GREEN), ((0, 32), BLUE), ((64, 32), WHITE)):
        image.paste(colour, (*at, at[0] + 64, at[1] + 32))
    return image


def heic(image, **options):
    content = io.BytesIO()
    pillow_heif.from_pillow(image).save(content, quality=90, **options)
    return content.getvalue()


def corners(image):
    across, down = (0.25 * image.width, 0.75 * image.width), (0.25 * image.height, 0.75 * image.height)
    return np.array([image.getpixel((int(x), int(y))) for y in down for x in across], int)


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x0110] = orientation, "Apple", "iPhone 12 mini"
    exif.get_ifd(0x8769)[0x9003] = "2026:11:16 10:20:30"
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 8.0, 15.0), 3: "E", 4: (11.0, 34.0, 30.0)})
    return exif.tobytes()


def test_a_heic_is_decoded_by_its_content(tmp_path):
    for name in ("a.heic", "a.jpg", "a"):
        (tmp_path / name).write_bytes(heic(four_corners()))
        image = decode(tmp_path / name)
        assert (image.mode, image.size) == ("RGB", (128, 64))
        assert np.abs(corners(image) - [RED, GREEN, BLUE, WHITE]).max() < 30


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_heic_is_turned_upright_once_and_its_header_read(orientation):
    transposes = [None, *(Image.Transpose(turn) for turn in (0, 3, 1, 5, 2, 6, 4))]  # orientations 1 to 8
    stored = four_corners() if orientation == 1 else four_corners().transpose(transposes[orientation - 1])
    read = read_photo(heic(stored, exif=exif_of(orientation)), "it")
    assert read.image.size == (128, 64)
    assert np.abs(corners(read.image) - [RED, GREEN, BLUE, WHITE]).max() < 30
    header = read.header
    assert (header.width, header.height, header.taken) == (128, 64, "2026-11-16")
    assert (header.camera, header.latitude, header.longitude) == ("Apple iPhone 12 mini", 48.1375, 11.575)


def test_transparent_pixels_become_white():
    image = Image.new("RGBA", (128, 64), (255, 0, 0, 255))
    image.paste((0, 0, 0, 0), (64, 0, 128, 64))
    pixels = corners(decode_bytes(heic(image), "it"))
    assert np.abs(pixels - [RED, WHITE, RED, WHITE]).max() < 30


@pytest.mark.parametrize("bits", [10, 12])
def test_more_than_eight_bits_are_scaled(bits):
    values = np.repeat(np.linspace(0, 2**16 - 1, 64).astype(np.uint16)[:, None], 64, 1)
    colours = np.ascontiguousarray(np.stack([values] * 3, -1))
    content = io.BytesIO()
    file = pillow_heif.from_bytes("RGB;16", (64, 64), colours.tobytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pillow_heif.options, "SAVE_HDR_TO_12_BIT", bits == 12)
        file.save(content, quality=100)
    opened = pillow_heif.open_heif(io.BytesIO(content.getvalue()), convert_hdr_to_8bit=False)
    assert opened.info["bit_depth"] == bits
    decoded = np.asarray(decode_bytes(content.getvalue(), "it"), int)
    assert np.abs(decoded - np.linspace(0, 255, 64).round().astype(int)[:, None, None]).max() <= 4


def test_an_embedded_thumbnail_is_enough_if_it_is_large_enough():
    noise = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    photo = Image.fromarray(noise).resize((1600, 1200))
    file = pillow_heif.from_pillow(photo)
    content = io.BytesIO()
    file[0].info["thumbnails"] = [400]
    file.save(content, quality=60)
    assert decode_bytes(content.getvalue(), "it", 120).size == (400, 300)
    assert decode_bytes(content.getvalue(), "it", 151).size == (1600, 1200)
    assert read_photo(content.getvalue(), "it", 120).header.width == 1600


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.5, 0.8, 0.97])
def test_a_truncated_heic_is_refused_with_the_reason(kept):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    whole = heic(Image.fromarray(noise))
    with pytest.raises(ImageError, match=r"^it: (damaged or cut short|not an image in a known format)"):
        decode_bytes(whole[: int(len(whole) * kept)], "it")


def test_any_damage_is_an_image_error_or_a_picture():
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    whole = heic(Image.fromarray(noise))
    refused = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        damaged = bytearray(whole)
        for at in rng.integers(0, min(len(whole), 600), 8):
            damaged[at] = rng.integers(256)
        try:
            assert decode_bytes(bytes(damaged), "it").mode == "RGB"
        except ImageError:
            refused += 1
    assert refused > 10


def test_an_absurd_size_in_the_header_is_refused(tmp_path):
    whole = heic(four_corners())
    at = whole.index(b"ispe") + 8  # after version and flags
    assert int.from_bytes(whole[at : at + 4], "big") in (64, 128)
    for width in (2**31 - 1, 40_000):
        absurd = whole[:at] + width.to_bytes(4, "big") * 2 + whole[at + 8 :]
        with pytest.raises(ImageError, match=r"^it: "):
            decode_bytes(absurd, "it")


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", True),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", True),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", False),
        (b"\0\0\0\x18ftypavif\0\0\0\0mif1miaf", False),
        (b"\0\0\0\x18ftypcrx \0\0\0\x01crx isom", False),
        (b"\0\0\0\x18ftypqt  \0\0\0\0qt  heic", True),
        (b"\xff\xd8\xff\xe0", False),
        (b"", False),
    ],
)
def test_heif_is_recognised_by_its_brands(beginning, expected):
    assert is_heif(beginning) == expected


def test_other_code_finds_pillow_as_it_was():
    decode_bytes(heic(four_corners()), "it")
    Image.init()
    assert "HEIF" not in Image.OPEN


@pytest.mark.parametrize("failure", ["missing", "broken"])
def test_without_the_package_the_reason_is_the_remedy(monkeypatch, failure):
    content = heic(four_corners())
    if failure == "missing":
        monkeypatch.setitem(sys.modules, "pillow_heif", None)
    else:

        class Broken:
            def __getattr__(self, name):
                raise OSError("libheif.so.1: no such file")

        monkeypatch.setitem(sys.modules, "pillow_heif", Broken())
    with pytest.raises(MissingPackageError) as caught:
        decode_bytes(content, "it")
    expected = {
        "missing": "it: a HEIC photo; to read it: pip install 'diptych[heic]'",
        "broken": "it: a HEIC photo; pillow-heif cannot be imported (OSError: libheif.so.1: no such file)",
    }
    assert str(caught.value) == expected[failure]


def test_the_package_is_not_imported_before_it_is_needed():
    code = "import sys, diptych.data.images; sys.exit('pillow_heif' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
