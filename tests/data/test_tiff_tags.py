import io
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.tiff_tags import TiffTags
from support.raw_photos import Tiff


@pytest.mark.parametrize("magic", [b"II*\0", b"MM\0*"])
def test_values_are_read_wherever_they_are(magic):
    tiff = Tiff(magic)
    tags = {1: 7, 2: "ab", 3: "a longer text", 4: [1, 2, 3], 5: [(1, 2), (3, 0)], 6: b"\1\2", 7: b"many bytes"}
    found = TiffTags(io.BytesIO(tiff.finish(tiff.directory(tags))))
    (fields,) = found.directories()
    plain = found.plain(fields)
    half, nothing = plain.pop(5)
    assert half == 0.5
    assert math.isnan(nothing)
    assert plain == {1: 7, 2: "ab\0", 3: "a longer text\0", 4: (1, 2, 3), 6: b"\1\2", 7: b"many bytes"}
    assert found.number(fields, 4) == 1
    assert found.number(fields, 3) is None
    assert found.values(fields, 99) == ()


def test_directories_follow_each_other_and_those_below_them():
    tiff = Tiff()
    third = tiff.directory({1: 3})
    below = [tiff.directory({1: 21}), tiff.directory({1: 22})]
    second = tiff.directory({1: 2, 0x014A: below}, following=third)
    first = tiff.directory({1: 1, 0x8769: tiff.directory({9: 5})}, following=second)
    found = TiffTags(io.BytesIO(tiff.finish(first)))
    directories = list(found.directories())
    assert [found.number(fields, 1) for fields in directories] == [1, 2, 21, 22, 3]
    assert found.plain(found.directory(directories[0], 0x8769)) == {9: 5}
    assert found.directory(directories[1], 0x8769) == {}


def test_a_structure_may_begin_anywhere():
    tiff = Tiff()
    content = b"before" + tiff.finish(tiff.directory({1: "a longer text"}))
    found = TiffTags(io.BytesIO(content), 6)
    assert [found.plain(fields) for fields in found.directories()] == [{1: "a longer text\0"}]


def test_a_cycle_ends():
    tiff = Tiff()
    place = len(tiff.content)
    tiff.directory({1: 1, 0x014A: place}, following=place)
    assert len(list(TiffTags(io.BytesIO(tiff.finish(place))).directories())) == 1


@pytest.mark.parametrize("count", [2001, 65535])
def test_absurd_counts_are_ignored(count):
    content = b"II*\0" + struct.pack("<IH", 8, count) + b"\0" * (12 * count + 4)
    assert list(TiffTags(io.BytesIO(content)).directories()) == [{}]
    huge = b"II*\0" + struct.pack("<IHHHIII", 8, 1, 5, 4, 2**31, 0, 0)
    found = TiffTags(io.BytesIO(huge))
    (fields,) = found.directories()
    assert found.values(fields, 5) == ()


@given(st.binary(max_size=300), st.sampled_from([b"II*\0", b"MM\0*"]))
def test_any_bytes_end_without_an_error(content, magic):
    found = TiffTags(io.BytesIO(magic + struct.pack("<I" if magic[0] == 73 else ">I", 8) + content))
    for fields in found.directories():
        found.plain(fields)
        found.directory(fields, 0x8769)
