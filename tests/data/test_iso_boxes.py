import io
import struct

from hypothesis import given
from hypothesis import strategies as st

from diptych.data.iso_boxes import Box, boxes, find
from support.raw_photos import box


def walk(content):
    return list(boxes(io.BytesIO(content), 0, len(content)))


def test_boxes_follow_each_other():
    content = box(b"ftyp", b"crx ") + box(b"uuid", b"u" * 16 + b"abc") + box(b"mdat", b"")
    assert walk(content) == [Box(b"ftyp", 8, 12), Box(b"uuid" + b"u" * 16, 36, 39), Box(b"mdat", 47, 47)]


def test_lengths_may_be_long_or_reach_to_the_end():
    content = struct.pack(">I4sQ", 1, b"wide", 20) + b"abcd" + struct.pack(">I4s", 0, b"last") + b"the rest"
    assert walk(content) == [Box(b"wide", 16, 20), Box(b"last", 28, 36)]


def test_a_box_that_is_not_within_the_file_ends_the_walk():
    assert walk(box(b"good", b"") + struct.pack(">I4s", 100, b"long")) == [Box(b"good", 8, 8)]
    assert walk(struct.pack(">I4s", 4, b"tiny")) == []
    assert walk(b"abc") == []


def test_a_million_empty_boxes_are_not_walked():
    assert len(walk(box(b"free", b"") * 5000)) == 2000


def test_boxes_are_found_by_their_path():
    content = box(b"moov", box(b"trak", b"one") + box(b"free", b"") + box(b"trak", b"two")) + box(b"trak", b"other")
    file = io.BytesIO(content)
    found = [content[found.begin : found.end] for found in find(file, 0, len(content), b"moov", b"trak")]
    assert found == [b"one", b"two"]
    assert list(find(file, 0, len(content), b"moov", b"mdia")) == []


@given(st.binary(max_size=200))
def test_any_bytes_end_without_an_error(content):
    assert all(0 <= found.begin <= found.end <= len(content) for found in walk(content))
