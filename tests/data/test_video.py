import os
import subprocess
import sys

import av
import numpy as np
import pytest

from diptych.data import video as module
from diptych.data.video import Video
from diptych.errors import ImageError, MissingPackageError
from support.videos import sound, video

RED, BLUE, WHITE, BLACK = (200, 0, 0), (0, 0, 200), (230, 230, 230), (20, 20, 20)
KINDS = {  # container, codec
    "a.mp4": "libx264",
    "a.mov": "mpeg4",
    "a.mkv": "libx264",
    "a.webm": "libvpx",
    "a.avi": "mpeg4",
    "a.mts": "libx264",
    "a.mpg": "mpeg2video",
    "a.wmv": "wmv2",
    "a.flv": "flv1",
    "a.3gp": "mpeg4",
}


def is_near(image, colour, at=(0.75, 0.75)):
    place = int(at[0] * image.width), int(at[1] * image.height)
    return np.abs(np.array(image.getpixel(place), int) - colour).max() < 40


def read(path, **options):
    with Video(path) as opened:
        return list(opened.frames(**options)), opened.is_damaged


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_every_few_seconds_is_read(tmp_path, name):
    container = {"a.mts": "mpegts"}.get(name)
    rate = {"gop": 10}
    size = (176, 144) if name == "a.3gp" else (96, 64)
    path = tmp_path / name
    if name == "a.mpg":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("support.videos.RATE", 25)
            video(path, [RED, BLUE, WHITE], codec=KINDS[name], size=size, **rate)
    else:
        video(path, [RED, BLUE, WHITE], codec=KINDS[name], size=size, container=container, **rate)
    frames, is_damaged = read(path)
    assert len(frames) == 3
    assert not is_damaged
    for number, (frame, colour) in enumerate(zip(frames, (RED, BLUE, WHITE), strict=True)):
        assert abs(frame.seconds - 5 * number) <= 2.5
        assert frame.seconds <= 5 * number + 0.5
        assert frame.image.size == size
        expected = (RED, BLUE, WHITE)[int(frame.seconds // 5)]
        assert is_near(frame.image, expected), (number, colour)
        with Video(path) as again:
            assert is_near(again.at(frame.seconds), expected)


def test_key_frames_are_preferred_and_others_decoded_if_none_is_near(tmp_path):
    path = video(tmp_path / "a.mp4", [RED, BLUE, WHITE], gop=1000)
    with Video(path) as opened:
        frames = list(opened.frames())
        assert opened._dependent > 0
    assert [round(frame.seconds) for frame in frames] == [0, 5, 10]
    assert is_near(frames[-1].image, WHITE)
    with Video(video(tmp_path / "b.mp4", [RED, BLUE, WHITE], gop=10)) as opened:
        list(opened.frames())
        assert opened._dependent == 0


def test_a_long_video_has_frames_further_apart(tmp_path):
    path = video(tmp_path / "a.mp4", [RED, BLUE, WHITE, BLACK], seconds=10)
    frames, _ = read(path, every=1, most=4)
    assert [frame.seconds for frame in frames] == [0.0, 10.0, 20.0, 30.0]
    assert [frame.seconds for frame in read(path, every=15)[0]] == [0.0, 15.0, 30.0]


def test_no_more_than_so_many_dependent_frames_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_DEPENDENT", 60)
    path = video(tmp_path / "a.mp4", [RED, BLUE, WHITE, BLACK], gop=1000)
    with Video(path) as opened:
        frames = list(opened.frames())
        assert opened._dependent <= 62
        assert not opened.is_damaged
    assert [round(frame.seconds) for frame in frames] == [0, 5]


@pytest.mark.parametrize(
    ("rotation", "corner"), [(0, (0.1, 0.1)), (-90, (0.9, 0.1)), (90, (0.1, 0.9)), (180, (0.9, 0.9))]
)
def test_a_video_of_a_phone_is_turned_upright(tmp_path, rotation, corner):
    path = video(tmp_path / "a.mp4", [RED], rotation=rotation, seconds=1)
    (frame,), _ = read(path)
    size = (64, 96) if rotation in (-90, 90) else (96, 64)
    assert frame.image.size == (frame.header.width, frame.header.height) == size
    assert is_near(frame.image, (0, 255, 0), corner)


def test_frames_are_reduced_while_they_are_converted(tmp_path):
    path = video(tmp_path / "a.mp4", [RED], size=(640, 480), seconds=1)
    with Video(path, 60) as opened:
        (frame,) = opened.frames()
        assert opened.at(0.0).size == (160, 120)
    assert frame.image.size == (160, 120)
    assert (frame.header.width, frame.header.height) == (640, 480)


def test_the_container_says_when_where_and_with_what(tmp_path):
    metadata = {
        "com.apple.quicktime.creationdate": "2026-11-16T23:30:00-0800",
        "com.apple.quicktime.make": "Apple",
        "com.apple.quicktime.model": "iPhone 15 Pro",
        "com.apple.quicktime.location.ISO6709": "+48.1375+011.5750+520.000/",
    }
    (frame,), _ = read(video(tmp_path / "a.mov", [RED], seconds=1, metadata=metadata))
    header = frame.header
    assert (header.taken, header.camera) == ("2026-11-16", "Apple iPhone 15 Pro")
    assert (header.latitude, header.longitude) == (48.1375, 11.575)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.webm"])
def test_a_truncated_video_gives_the_frames_that_can_be_read(tmp_path, name):
    rng = np.random.default_rng(0)
    colours = [tuple(rng.integers(0, 255, 3)) for _ in range(12)]
    whole = video(tmp_path / name, colours, codec=KINDS[name] if name == "a.webm" else "libx264").read_bytes()
    path = tmp_path / f"cut{name}"
    path.write_bytes(whole[: len(whole) // 2])
    frames, is_damaged = read(path)
    assert 2 <= len(frames) < 12
    assert is_damaged


def test_damage_in_the_middle_keeps_what_can_be_read(tmp_path):
    rng = np.random.default_rng(0)
    path = video(tmp_path / "a.mp4", [tuple(rng.integers(0, 255, 3)) for _ in range(12)])
    content = bytearray(path.read_bytes())
    begin = content.index(b"mdat") + (len(content) - content.index(b"mdat")) // 3
    content[begin : begin + 1500] = rng.integers(0, 255, 1500, np.uint8).tobytes()
    path.write_bytes(content)
    frames, _ = read(path)
    assert 4 <= len(frames) <= 12


def reason(path):
    with pytest.raises(ImageError) as caught, Video(path) as opened:
        list(opened.frames())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_video_says_why(tmp_path):
    assert reason(sound(tmp_path / "sound.mp4")) == "a video without pictures, only sound"
    with av.open(str(tmp_path / "empty.mp4"), "w") as file:
        file.add_stream("libx264", rate=10).pix_fmt = "yuv420p"
        file.start_encoding()
    assert reason(tmp_path / "empty.mp4") == "a video without pictures"
    (tmp_path / "empty.mp4").write_bytes(b"")
    assert reason(tmp_path / "empty.mp4") == "an empty file (0 bytes); copy it again"
    assert reason(tmp_path / "gone.mp4") == "no such file"
    (tmp_path / "text.mp4").write_text("a dog")
    assert reason(tmp_path / "text.mp4").startswith("not a video in a known format, or its index is missing")
    whole = video(tmp_path / "a.mp4", [RED]).read_bytes()
    (tmp_path / "recording.mp4").write_bytes(whole.replace(b"moov", b"junk"))
    assert "its index is missing" in reason(tmp_path / "recording.mp4")


def test_a_playlist_is_never_opened(tmp_path):
    target = video(tmp_path / "secret.mp4", [RED])
    playlists = [
        f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{target}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile {target}\n",
    ]
    for playlist in playlists:
        (tmp_path / "list.mp4").write_text(playlist)
        assert reason(tmp_path / "list.mp4").startswith("not a video in a known format")


def test_a_name_is_not_taken_for_a_protocol(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    video("a.mp4", [RED], seconds=1)
    name = "concat:a.mp4|a.mp4"
    os.rename("a.mp4", name)  # noqa: PTH104
    assert len(read(module.Path(name))[0]) == 1


def test_frames_of_an_absurd_size_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_FRAME_PIXELS", 96 * 64 - 1)
    path = video(tmp_path / "a.mp4", [RED], seconds=1)
    assert "above the limit of 6,143 for videos" in reason(path) or "unknown format or damaged" in reason(path)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.avi"])
def test_any_damage_ends_with_frames_or_a_reason(tmp_path, name):
    whole = video(tmp_path / name, [RED, BLUE], seconds=2, codec=KINDS[name]).read_bytes()
    path = tmp_path / f"damaged{name}"
    for seed in range(25):
        rng = np.random.default_rng(seed)
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 20):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            frames, _ = read(path)
        except ImageError:
            continue
        assert all(frame.image.mode == "RGB" for frame in frames)


@pytest.mark.parametrize("failure", ["missing", "broken"])
def test_without_the_package_the_reason_is_the_remedy(tmp_path, monkeypatch, failure):
    path = video(tmp_path / "a.mp4", [RED], seconds=1)
    if failure == "missing":
        monkeypatch.setitem(sys.modules, "av", None)
        expected = "a video; to read it: pip install 'diptych[video]'"
    else:
        monkeypatch.delitem(sys.modules, "av")
        monkeypatch.setattr("builtins.__import__", broken_import(__import__))
        expected = "a video; PyAV cannot be imported (OSError: libavcodec.so.62: no such file)"
    with pytest.raises(MissingPackageError) as caught:
        Video(path)
    assert str(caught.value) == expected


def test_an_old_version_of_the_package_is_refused(tmp_path, monkeypatch):
    path = video(tmp_path / "a.mp4", [RED], seconds=1)
    monkeypatch.setattr("av.__version__", "17.0.1")
    with pytest.raises(MissingPackageError, match=r"PyAV 17.0.1 is too old to read it: pip install 'diptych\[video\]'"):
        Video(path)


def broken_import(original):
    def import_(name, *arguments):
        if name == "av":
            raise OSError("libavcodec.so.62: no such file")
        return original(name, *arguments)

    return import_


def test_the_package_is_not_imported_before_it_is_needed():
    code = "import sys, diptych.data.video, diptych.index.update; sys.exit('av' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
