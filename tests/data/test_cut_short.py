import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data import cut_short
from diptych.data.cut_short import is_cut_short
from support.raw_photos import box
from support.videos import video

COLOURS = [(200, 0, 0), (0, 0, 200)]
CODECS = {"a.mp4": "libx264", "a.mov": "mpeg4", "a.mkv": "libx264", "a.webm": "libvpx", "a.avi": "mpeg4"}
UNKNOWN = b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x01" + b"\xff" * 7


@pytest.mark.parametrize("name", CODECS)
def test_a_video_that_was_not_copied_to_its_end_is_cut_short(tmp_path, name):
    whole = video(tmp_path / name, COLOURS, codec=CODECS[name])
    assert not is_cut_short(whole)
    content = whole.read_bytes()
    for kept in (len(content) // 2, len(content) - 1):
        whole.write_bytes(content[:kept])
        assert is_cut_short(whole)


def test_what_does_not_say_where_it_ends_is_not(tmp_path):
    stream = video(tmp_path / "a.mts", COLOURS, container="mpegts")
    stream.write_bytes(stream.read_bytes()[:-100])
    recording, text = tmp_path / "recording.webm", tmp_path / "a.mp4"
    recording.write_bytes(UNKNOWN + b"a cluster")
    text.write_text("a dog")
    assert not any(map(is_cut_short, (stream, recording, text, tmp_path / "gone.mp4")))


def test_fragments_of_a_long_recording_are_not_counted_to_their_end(tmp_path, monkeypatch):
    monkeypatch.setattr(cut_short, "_MAX_FRAGMENTS", 10)
    path = tmp_path / "a.mp4"
    path.write_bytes(box(b"ftyp", b"") + box(b"moof", b"") * 20)
    assert not is_cut_short(path)


@given(st.sampled_from([UNKNOWN[:4], UNKNOWN[:9], b"RIFF"]), st.binary(max_size=30))
def test_any_bytes_end_without_an_error(beginning, rest):
    file = io.BytesIO(beginning + rest)
    assert cut_short._end_of_segment(file) >= 0
