import io

import pytest
from PIL import Image

from diptych.serve.media_types import BEGINNING, SHOWN, UNKNOWN, media_type


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        *(("JPEG", "image/jpeg"), ("PNG", "image/png"), ("GIF", "image/gif"), ("WEBP", "image/webp")),
        *(("BMP", "image/bmp"), ("TIFF", "image/tiff"), ("AVIF", "image/avif"), ("JPEG2000", "image/jp2")),
    ],
)
def test_pictures_are_known_by_their_first_bytes(form, expected):
    out = io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(out, form)
    assert media_type(out.getvalue()[:BEGINNING]) == expected


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [
        (b"\0\0\0\x18ftypheic\0\0", "image/heic"),
        (b"\0\0\0\x18ftypmif1\0\0", "image/heif"),
        (b"\0\0\0\x18ftypisom\0\0", "video/mp4"),
        (b"\0\0\0\x18ftypqt  \0\0", "video/quicktime"),
        (b"\0\0\0\x18ftypcrx \0\0", "image/x-canon-cr3"),
        (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm", "video/webm"),
        (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\x82\x88matroska", "video/x-matroska"),
        (b"RIFF\0\0\0\0AVI LIST", "video/x-msvideo"),
        (b"RIFF\0\0\0\0WAVE", UNKNOWN),
        (b"<svg", UNKNOWN),
        (b"<!doctype html>", UNKNOWN),
        (b"", UNKNOWN),
    ],
)
def test_other_files_by_theirs(beginning, expected):
    assert media_type(beginning) == expected


def test_nothing_that_can_hold_a_script_is_shown():
    assert all(kind.startswith(("image/", "video/")) and "svg" not in kind for kind in SHOWN)
