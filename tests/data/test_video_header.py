import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.header import Header
from diptych.data.video_header import clock, header_of


@pytest.mark.parametrize(
    ("metadata", "day"),
    [
        ({"creation_time": "2026-11-16T12:00:00.000000Z"}, "2026-11-16"),
        ({"creation_time": "2026-11-16 12:00:00"}, "2026-11-16"),
        (
            {"com.apple.quicktime.creationdate": "2026-11-16T23:30:00-0800", "creation_time": "2026-11-17T07:30:00Z"},
            "2026-11-16",
        ),
        ({"creation_time": "1904-01-01T00:00:00.000000Z"}, None),
        ({"creation_time": "1970-01-01T00:00:00.000000Z"}, None),
        ({"creation_time": "yesterday"}, None),
        ({}, None),
    ],
)
def test_the_day_of_a_recording(metadata, day):
    assert header_of(metadata).taken == day


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+48.1375+011.5750+520.000/", (48.1375, 11.575)),
        ("-33.8587+151.2100/", (-33.8587, 151.21)),
        ("+00.0000+000.0000/", (None, None)),
        ("+95.0000+011.5750/", (None, None)),
        ("somewhere", (None, None)),
        ("", (None, None)),
    ],
)
def test_the_place_of_a_recording(text, expected):
    header = header_of({"location": text})
    assert (header.latitude, header.longitude) == expected


def test_the_camera_of_a_recording():
    android = {"com.android.manufacturer": "samsung", "com.android.model": "SM-G991B"}
    assert header_of(android).camera == "samsung SM-G991B"
    assert header_of({}) == Header(0, 0)


@given(st.dictionaries(st.sampled_from(["creation_time", "location", "make", "model", "date"]), st.text()))
def test_any_metadata_will_do(metadata):
    header_of(metadata)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (12.9, "0:12"), (61, "1:01"), (3599, "59:59"), (3661, "1:01:01")]
)
def test_times_are_written_as_players_do(seconds, text):
    assert clock(seconds) == text
