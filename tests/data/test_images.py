from __future__ import annotations

import os
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from diptych.data.images import PictureFile, decode, read_photo, square_array, square_pixels
from diptych.errors import ImageError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def corners(image: Image.Image) -> list[tuple[int, ...]]:
    right, bottom = image.width - 1, image.height - 1
    return [image.getpixel(at) for at in ((0, 0), (right, 0), (0, bottom), (right, bottom))]


def four_corners() -> Image.Image:
    """Landscape, red top left, green top right, blue bottom left, white bottom right."""
    image = Image.new("RGB", (32, 16))
    for at, colour in (((0, 0), RED), ((16, 0), GREEN), ((0, 8), BLUE), ((16, 8), WHITE)):
        image.paste(colour, (*at, at[0] + 16, at[1] + 8))
    return image


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_header(path: Path, width: int, height: int) -> Path:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = png_chunk(b"IDAT", zlib.compress(b"\0" * 100)) + png_chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + body)
    return path


def refused(path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError) as caught:
            decode(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff", "webp", "ppm"])
def test_plain_colours_come_back_exactly(tmp_path: Path, suffix: str) -> None:
    path = saved(tmp_path / f"a.{suffix}", four_corners(), **({"lossless": True} if suffix == "webp" else {}))
    image = PictureFile(path).load()
    assert (image.mode, image.size) == ("RGB", (32, 16))
    assert corners(image) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(tmp_path: Path, suffix: str, orientation: int) -> None:
    stored_as = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    upright = four_corners()
    stored = upright if stored_as is None else upright.transpose(stored_as)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / f"a.{suffix}", stored, exif=exif, quality=100)
    image = decode(path)
    assert image.size == (32, 16)
    assert np.abs(np.array(corners(image)) - np.array([RED, GREEN, BLUE, WHITE])).max() < 40


def test_compressed_tiff_orientation_is_undone_once(tmp_path: Path) -> None:
    stored = four_corners().transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path / "a.tif", stored, exif=exif, compression="tiff_lzw")
    assert corners(decode(path)) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("damage", [b"nonsense", b"II*\0\x08\0\0\0\x05\0" + b"\x12\x01\x03\0\xff\xff\xff\x7f" * 4])
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_damaged_exif_does_not_refuse_the_picture(tmp_path: Path, damage: bytes, suffix: str) -> None:
    path = saved(tmp_path / f"a.{suffix}", four_corners(), exif=b"Exif\0\0" + damage)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(path).size == (32, 16)


def test_cmyk(tmp_path: Path) -> None:
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # magenta and yellow make red
    for path in (saved(tmp_path / "a.jpg", image, quality=100), saved(tmp_path / "a.tif", image)):
        assert np.abs(np.array(decode(path).getpixel((8, 8))) - RED).max() < 8


def test_transparent_pixels_become_white(tmp_path: Path) -> None:
    rgba = Image.new("RGBA", (4, 4), (255, 0, 0, 128))
    rgba.putpixel((0, 0), (0, 0, 0, 0))
    image = decode(saved(tmp_path / "rgba.png", rgba))
    assert image.getpixel((0, 0)) == WHITE
    assert image.getpixel((1, 1)) == (255, 127, 127)

    grey = Image.new("LA", (4, 4), (0, 255))
    grey.putpixel((0, 0), (0, 0))
    image = decode(saved(tmp_path / "la.png", grey))
    assert (image.getpixel((0, 0)), image.getpixel((1, 1))) == (WHITE, (0, 0, 0))


@pytest.mark.parametrize("transparency", [1, b"\xff\x00"])
def test_palette_with_transparency_is_put_on_white(tmp_path: Path, transparency: int | bytes) -> None:
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([*GREEN, *RED])
    palette.putpixel((2, 2), 1)
    opaque = decode(saved(tmp_path / "opaque.png", palette))
    assert (opaque.getpixel((0, 0)), opaque.getpixel((2, 2))) == (GREEN, RED)
    path = saved(tmp_path / "a.png", palette, transparency=transparency)
    image = decode(path)
    assert (image.getpixel((0, 0)), image.getpixel((2, 2))) == (GREEN, WHITE)


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    values = np.array([[0, 200, 32896, 65535]], np.uint16)
    for name in ("a.png", "a.tif"):
        image = decode(saved(tmp_path / name, Image.fromarray(values)))
        assert np.asarray(image)[0, :, 0].tolist() == [0, 1, 128, 255]
    (tmp_path / "a.pgm").write_bytes(b"P5 4 1 65535\n" + values.astype(">u2").tobytes())
    assert np.asarray(decode(tmp_path / "a.pgm"))[0, :, 0].tolist() == [0, 1, 128, 255]
    big_endian = Image.frombytes("I;16B", (4, 1), values.astype(">u2").tobytes())
    assert np.asarray(decode(saved(tmp_path / "b.tif", big_endian)))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_sixteen_bit_transparent_grey_is_put_on_white(tmp_path: Path) -> None:
    values = np.array([[0, 5000, 65535]], np.uint16)
    path = saved(tmp_path / "a.png", Image.fromarray(values), transparency=5000)
    assert np.asarray(decode(path))[0, :, 0].tolist() == [0, 255, 255]


def test_one_bit(tmp_path: Path) -> None:
    image = Image.new("1", (4, 4), 1)
    image.putpixel((0, 0), 0)
    decoded = decode(saved(tmp_path / "a.png", image))
    assert (decoded.getpixel((0, 0)), decoded.getpixel((1, 1))) == ((0, 0, 0), WHITE)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_animation_gives_its_first_frame(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, GREEN, BLUE)]
    path = saved(tmp_path / f"a.{suffix}", frames[0], save_all=True, append_images=frames[1:])
    assert np.abs(np.array(decode(path).getpixel((4, 4))) - RED).max() < 4


def test_pixels_without_a_fixed_white_are_refused(tmp_path: Path) -> None:
    assert "floating-point" in refused(saved(tmp_path / "f.tif", Image.new("F", (4, 4), 0.5)))
    assert "32-bit" in refused(saved(tmp_path / "i.tif", Image.new("I", (4, 4), 70_000)))
    assert "32-bit" in refused(saved(tmp_path / "n.tif", Image.new("I", (4, 4), -1)))


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "tif", "webp", "ppm", "jp2", "avif"])
@pytest.mark.parametrize("kept", [0.02, 0.5, 0.95])
def test_truncated_files_are_refused(tmp_path: Path, suffix: str, kept: float) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    try:
        whole = saved(tmp_path / f"whole.{suffix}", Image.fromarray(noise)).read_bytes()
    except (KeyError, ValueError, OSError):
        pytest.skip("this Pillow does not write it")
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert "damaged or cut short" in refused(path) or kept < 0.1


def png(size: tuple[int, int], *chunks: tuple[bytes, bytes]) -> bytes:
    """An RGB PNG with these chunks after its header."""
    header = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IEND", b"")]
    checked = (kind + content + struct.pack(">I", zlib.crc32(kind + content)) for kind, content in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part[1])) + chunk for part, chunk in zip(parts, checked, strict=True)
    )


def test_a_png_with_damaged_pixels_is_refused_as_a_file_and_as_bytes(tmp_path: Path) -> None:
    pixels = bytearray(zlib.compress(np.random.default_rng(0).bytes(100 * 301)))
    pixels[5000:5020] = b"\xff" * 20
    path = tmp_path / "a.png"
    path.write_bytes(png((100, 100), (b"IDAT", bytes(pixels))))
    with pytest.raises(ImageError, match="damaged or cut short"):
        decode(path)
    with pytest.raises(ImageError, match="damaged or cut short"):
        read_photo(path.read_bytes(), "a.png")


def test_exif_after_the_pixels_of_a_png_is_read() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x0110] = 6, "Pixel 8"
    pixels = zlib.compress((b"\0" + b"\xff\0\0" * 30) * 20)
    photo = read_photo(png((30, 20), (b"IDAT", pixels), (b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))), "a.png")
    assert photo.image.size == (photo.header.width, photo.header.height) == (20, 30)
    assert photo.header.camera == "Pixel 8"


def test_a_png_above_the_limit_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load_prepare", lambda image: pytest.fail("it was decoded"))
    content = png((3000, 2000), (b"IDAT", zlib.compress(b"")))
    with pytest.raises(ImageError, match="3000 x 2000 pixels, above the limit of 1,000,000"):
        read_photo(content, "a.png", limit=1_000_000)


def test_files_that_are_no_images_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    assert "0 bytes" in refused(tmp_path / "empty.jpg")
    (tmp_path / "text.jpg").write_text("a dog\n", encoding="utf-8")
    assert "not an image in a known format (JPEG, PNG" in refused(tmp_path / "text.jpg")
    assert ", HEIC, RAW), or its beginning is damaged" in refused(tmp_path / "text.jpg")
    (tmp_path / "folder.jpg").mkdir()
    assert "a folder" in refused(tmp_path / "folder.jpg")
    assert refused(tmp_path / "gone.jpg") == "no such file"
    assert "too long" in refused(tmp_path / ("x" * 5000))
    os.mkfifo(tmp_path / "pipe.jpg")
    assert "not an ordinary file" in refused(tmp_path / "pipe.jpg")
    assert "\n" not in refused(tmp_path / "nul\0.jpg")


def test_postscript_is_never_run(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.eps", four_corners())
    assert "not an image in a known format" in refused(path.rename(tmp_path / "a.jpg"))


def test_unreadable_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "a.png", four_corners())

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert refused(path) == "cannot be read (Permission denied)"


@pytest.mark.parametrize("size", [(15_811, 15_812), (30_000, 30_000), (2**31 - 1, 2**31 - 1)])
def test_bombs_are_refused_from_their_header(tmp_path: Path, size: tuple[int, int]) -> None:
    message = refused(png_header(tmp_path / "bomb.png", *size))
    assert "above the limit of 250,000,000 pixels" in message
    assert Image.MAX_IMAGE_PIXELS == 1024 * 1024 * 1024 // 4 // 3


def test_the_silence_survives_filters_set_later(tmp_path: Path) -> None:
    bomb = png_header(tmp_path / "bomb.png", 20_000, 20_001)
    with warnings.catch_warnings(record=True) as heard:
        for _ in range(2):
            warnings.simplefilter("always")
            with pytest.raises(ImageError, match="20000 x 20001"):
                decode(bomb)
    assert heard == []


def test_pixels_are_squashed_and_channels_come_first(tmp_path: Path) -> None:
    array = square_pixels(PictureFile(saved(tmp_path / "a.png", four_corners())), 8)
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((3, 8, 8), np.uint8, True)
    assert [tuple(array[:, y, x]) for y, x in ((0, 0), (0, 7), (7, 0), (7, 7))] == [RED, GREEN, BLUE, WHITE]


def test_shrinking_averages(tmp_path: Path) -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    array = square_array(Image.fromarray(stripes), 8)
    assert np.abs(array.astype(int) - 127).max() < 12  # nearest-neighbour would give 0 or 255


def test_any_picture_will_do() -> None:
    class Drawn:
        def load(self) -> Image.Image:
            return Image.new("RGB", (5, 7), BLUE)

    assert square_pixels(Drawn(), 3).tolist() == [[[0] * 3] * 3, [[0] * 3] * 3, [[255] * 3] * 3]


def test_large_jpegs_are_decoded_small_when_the_size_is_known(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jpg", four_corners().resize((1600, 800)), quality=95)
    assert decode(path).size == (1600, 800)
    small = decode(path, 64)
    assert 128 <= min(small.size) < 800
    difference = square_pixels(PictureFile(path), 64).astype(int) - square_array(decode(path), 64)
    assert np.abs(difference).max() <= 8


def test_threads_get_what_one_thread_gets(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{i}.png", Image.new("RGB", (20, 20), (i, 0, 0))) for i in range(40)]
    paths.insert(3, png_header(tmp_path / "bomb.png", 20_000, 20_001))

    def look(path: Path) -> object:
        try:
            return decode(path).getpixel((0, 0))
        except ImageError as reason:
            return str(reason)

    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("error")
        assert list(pool.map(look, paths)) == [look(path) for path in paths]
