import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diptych.data.header import Header, camera_name, capture_day, header_of, make_header, place
from diptych.data.images import read_photo


def photo(suffix="JPEG", size=(40, 30), exif=None, **options):
    content = io.BytesIO()
    block = exif.tobytes() if isinstance(exif, Image.Exif) else exif
    Image.new("RGB", size, "red").save(content, suffix, **({"exif": block} if block else {}), **options)
    return content.getvalue()


def exif_of(orientation=1, make="NIKON CORPORATION", model="NIKON D750", taken="2026:11:16 10:20:30", gps=None):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x0110] = orientation, make, model
    exif.get_ifd(0x8769)[0x9003] = taken
    exif.get_ifd(0x8825).update({1: "S", 2: (33.0, 51.0, 31.2), 3: "E", 4: (151.0, 12.0, 36.0)} if gps is None else gps)
    return exif


@pytest.mark.parametrize("suffix", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_header_is_read_with_its_photo(suffix, orientation):
    read = read_photo(photo(suffix, exif=exif_of(orientation)), "it")
    assert read.image.size == ((30, 40) if orientation > 4 else (40, 30))
    assert read.header == Header(*read.image.size, "2026-11-16", "Nikon D750", -33.858667, 151.21)


def test_the_size_is_that_of_the_file_even_if_it_is_decoded_smaller():
    read = read_photo(photo(size=(1600, 800), exif=exif_of(6)), "it", 50)
    assert read.image.size == (100, 200)
    assert (read.header.width, read.header.height) == (800, 1600)


def test_a_photo_without_exif_has_only_a_size():
    assert read_photo(photo(), "it").header == Header(40, 30)


@pytest.mark.parametrize("damage", [b"nonsense", b"II*\0\x08\0\0\0\x05\0" + b"\x12\x01\x03\0\xff\xff\xff\x7f" * 4])
def test_a_damaged_exif_block_is_ignored(damage):
    header = read_photo(photo(exif=b"Exif\0\0" + damage), "it").header
    assert header == Header(40, 30)


@pytest.mark.parametrize(
    ("make", "model", "name"),
    [
        ("NIKON CORPORATION", "NIKON D750", "Nikon D750"),
        ("Canon", "Canon EOS 5D Mark IV", "Canon EOS 5D Mark IV"),
        ("Apple", "iPhone 12 mini", "Apple iPhone 12 mini"),
        ("SONY", "ILCE-7M3", "Sony ILCE-7M3"),
        ("OLYMPUS IMAGING CORP.  ", "E-M1MarkII      ", "Olympus E-M1MarkII"),
        ("EASTMAN KODAK COMPANY", "KODAK Z650 ZOOM DIGITAL CAMERA", "Kodak Z650 ZOOM DIGITAL CAMERA"),
        ("SAMSUNG ELECTRONICS CO., LTD", "SM-G991B", "Samsung SM-G991B"),
        ("LG Electronics", "LG-H870", "LG LG-H870"),
        ("FUJIFILM\0\0\0junk", "X-T3\0", "Fujifilm X-T3"),
        (b"Google", b"Pixel 8\0", "Google Pixel 8"),
        (None, "DSC-RX100", "DSC-RX100"),
        ("GoPro", None, "GoPro"),
        ("", "\0\x01 ", None),
        (None, None, None),
        (7, 1.5, None),
    ],
)
def test_a_camera_is_named_as_people_do(make, model, name):
    assert camera_name(make, model) == name


@given(st.one_of(st.none(), st.text(), st.binary(), st.integers()), st.one_of(st.none(), st.text(), st.binary()))
def test_any_camera_has_a_short_printable_name_or_none(make, model):
    name = camera_name(make, model)
    assert name is None or (name.isprintable() and 0 < len(name) <= 80 and name == name.strip())


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        ("2026:11:16 10:00:00", "2026-11-16"),
        ("2026-11-16T10:00:00.000000Z", "2026-11-16"),
        ("2026:1:2", "2026-01-02"),
        ("0000:00:00 00:00:00", None),
        ("2026:02:30 00:00:00", None),
        ("    :  :     :  :  ", None),
        (None, None),
        (b"2026", None),
    ],
)
def test_only_a_day_that_exists_is_one(moment, day):
    assert capture_day(moment) == day


@pytest.mark.parametrize(
    "gps",
    [
        {1: "N", 2: (91.0, 0.0, 0.0), 3: "E", 4: (1.0, 0.0, 0.0)},
        {1: "N", 2: (1.0, 0.0, 0.0), 3: "E", 4: (181.0, 0.0, 0.0)},
        {1: "N", 2: (0.0, 0.0, 0.0), 3: "E", 4: (0.0, 0.0, 0.0)},
        {1: "N", 2: (math.nan, 0.0, 0.0), 3: "E", 4: (1.0, 0.0, 0.0)},
        {1: "N", 2: (1.0, 0.0, 0.0)},
        {1: "N", 2: (), 3: "E", 4: ()},
        {1: "N", 2: "ab", 3: "E", 4: 7},
        {1: "N", 2: (-1.0, 0.0, 0.0), 3: "E", 4: (1.0, 0.0, 0.0)},
    ],
)
def test_a_place_that_is_none_is_left_out(gps):
    header = make_header((4, 3), {}, {}, gps)
    assert (header.latitude, header.longitude) == (None, None)


def test_a_place_without_a_fix_or_beyond_the_earth_is_none():
    assert place(48.1, 11.5) == (48.1, 11.5)
    assert place(0, 0) == place(math.nan, 1) == place(90.1, 0) == place(0, -181) == (None, None)


def test_an_image_whose_parser_raises_has_its_size():
    class Broken(Image.Image):
        size, width, height = (4, 3), 4, 3

        def getexif(self):
            raise RuntimeError

    assert header_of(Broken()) == Header(4, 3)
