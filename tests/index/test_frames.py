import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diptych.data.header import Header
from diptych.data.video import Moment
from diptych.errors import DataError
from diptych.index.frames import (
    distinct,
    file_key,
    frame_hash,
    frame_key,
    number_names,
    seconds_of,
    video_hash,
)


@given(st.text(min_size=1), st.integers(0, 864_000))
def test_keys_and_hashes_of_frames_lead_back_to_the_file_and_the_second(video, tenths):
    seconds = tenths / 10
    assert file_key(frame_key(video, seconds), seconds) == video
    assert file_key(video, None) == video
    digest = hashlib.sha256(video.encode("utf-8", "surrogatepass")).digest()
    assert seconds_of(frame_hash(digest, seconds)) == seconds
    assert frame_hash(digest, seconds).startswith(digest)


def test_hashes_are_in_the_order_of_the_frames():
    hashes = [frame_hash(bytes(32), seconds) for seconds in (0.0, 0.1, 25.5, 25.6, 6553.6, 86400.0)]
    assert hashes == sorted(hashes)


def test_a_key_is_as_people_write_it():
    assert frame_key("a/holiday.mp4", 12) == "a/holiday.mp4#12.0"


def test_a_video_is_hashed_in_pieces_and_must_not_change(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(b"x" * 3_000_000)
    status = path.stat()
    assert video_hash(path, (status.st_size, status.st_mtime_ns)) == hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(DataError, match=r"changed while it was read"):
        video_hash(path, (status.st_size - 1, status.st_mtime_ns))


def test_frames_that_show_the_same_as_the_last_one_are_left_out():
    rng = np.random.default_rng(0)
    scene, other = (rng.integers(0, 255, (6, 8, 3), np.uint8) for _ in range(2))

    def moment(seconds, pixels, brighter=0):
        image = Image.fromarray(np.clip(pixels.astype(int) + brighter, 0, 255).astype(np.uint8)).resize((320, 240))
        return Moment(seconds, image, Header(320, 240))

    moments = [moment(0, scene), moment(5, scene, 4), moment(10, other), moment(15, other), moment(20, scene)]
    kept = list(distinct(moments))
    assert [frame.moment.seconds for frame in kept] == [0, 10, 20]
    assert all(frame.thumbnail.startswith(b"\xff\xd8") for frame in kept)
    assert kept[0].look == kept[2].look != kept[1].look


def test_names_are_numbered():
    assert number_names(["a", None, "b", "a"]).tolist() == [1, 0, 2, 1]
