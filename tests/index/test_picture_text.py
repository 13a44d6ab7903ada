import io
import os
import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from diptych.errors import DiptychError
from diptych.index.picture_text import RapidTextReader

LINES = ("RECEIPT", "Pizza Margherita 9.50", "Total 12.40")


@pytest.fixture(scope="module")
def reader():
    pytest.importorskip("rapidocr", reason="`make test` installs it, without its OpenCV")
    return RapidTextReader()


def receipt():
    """A receipt as it is printed."""
    paper = Image.new("RGB", (520, 320), "white")
    draw, font = ImageDraw.Draw(paper), ImageFont.load_default(36)
    for number, line in enumerate(LINES):
        draw.text((30, 40 + 90 * number), line, fill=(30, 30, 30), font=font)
    return paper


def photographed(paper):
    """The same as a photo: on a table, in perspective, with a shadow, slightly blurred, noisy and compressed."""
    table = Image.new("RGB", (700, 560), (120, 95, 70))
    tilt = (0.95, 0.1, -70, -0.06, 0.98, -60, 0.00015, 0.0002)
    sheet = paper.convert("RGBA").transform(table.size, Image.Transform.PERSPECTIVE, tilt, Image.Resampling.BICUBIC)
    table.paste(sheet, (0, 0), sheet)
    pixels = np.asarray(table.filter(ImageFilter.GaussianBlur(0.8)), np.float32)
    pixels = pixels * np.linspace(1, 0.55, pixels.shape[1])[None, :, None]
    pixels += np.random.default_rng(0).normal(0, 6, pixels.shape)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=60)
    return Image.open(file).convert("RGB")


def test_printed_and_photographed_words_are_read(reader):
    assert reader.read(receipt()).split("\n") == [*LINES]
    words = reader.read(photographed(receipt())).lower().split()
    assert {"receipt", "pizza", "margherita", "total"} <= set(words)


def test_pictures_without_words_have_none(reader):
    assert reader.read(Image.new("RGB", (60, 40), "navy")) == ""
    assert reader.read(Image.new("RGB", (3, 2))) == ""


def test_large_pictures_are_reduced_and_stay_as_they_are(reader):
    large = receipt().resize((2600, 1600))
    assert reader.read(large).split("\n") == [*LINES]
    assert large.size == (2600, 1600)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(DiptychError, match=r"rapidocr.*pip install 'diptych\[ocr\]'"):
        RapidTextReader()


def test_nothing_is_reported_about_what_is_read(reader, monkeypatch):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    RapidTextReader()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
