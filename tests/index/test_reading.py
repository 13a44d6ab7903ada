"""Videos in an index; what is read of photos is tested with update and sync."""

import itertools
import os
import sys
import threading

import numpy as np
import pytest

from diptych.data import file_kinds
from diptych.index import frames
from diptych.index.reading import unreadable
from support.one_pass import ColourModel, make_store, run
from support.videos import sound, video

SCENES = [(200, 0, 0), (0, 0, 200), (230, 230, 230)]
CLOCK = itertools.count(10**18, 10**9)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    textured(folder / "holiday.mp4")
    return folder


def textured(path, scenes=SCENES):
    """A video whose scenes differ, written now."""
    video(path, scenes)
    moment = next(CLOCK)
    os.utime(path, ns=(moment, moment))
    return path


@pytest.fixture
def store(tmp_path, folder):
    store = make_store(tmp_path / "x.diptych", folder)
    yield store
    store.close()


def entries(store):
    found = store.entries(store.vectors("image")[0])
    return {entry.key: entry for entry in sorted(found, key=lambda entry: (entry.path, entry.moment))}


def test_every_frame_is_an_entry_with_the_file_and_the_second(store, folder):
    assert run(store, folder).encoded == 3
    found = entries(store)
    assert list(found) == ["holiday.mp4#0.0", "holiday.mp4#5.0", "holiday.mp4#10.0"]
    for entry, seconds in zip(found.values(), (0.0, 5.0, 10.0), strict=True):
        assert (entry.path, entry.moment, entry.folder) == (str(folder / "holiday.mp4"), seconds, "")
        assert (entry.width, entry.height) == (96, 64)
        assert store.thumbnail(entry.id).startswith(b"\xff\xd8")
        assert entry.to_json()["moment"] == seconds
    assert run(store, folder).encoded == 0
    assert store.problems() == []


def test_an_unchanged_video_is_not_opened(store, folder, monkeypatch):
    run(store, folder)
    generation = store.generation
    monkeypatch.setattr(frames, "video_hash", None)
    monkeypatch.setattr("diptych.index.reading.video_hash", None)
    run(store, folder)
    assert store.generation == generation


def test_a_renamed_video_is_not_decoded_and_its_entries_stay(store, folder, monkeypatch):
    run(store, folder)
    before = {entry.moment: id for id, entry in ((entry.id, entry) for entry in entries(store).values())}
    (folder / "trip").mkdir()
    (folder / "holiday.mp4").rename(folder / "trip/rome.mp4")
    monkeypatch.setattr("diptych.index.reading.Video", None)
    result = run(store, folder)
    assert (result.encoded, result.removed, result.writer.renamed) == (0, 0, 3)
    found = entries(store)
    assert list(found) == ["trip/rome.mp4#0.0", "trip/rome.mp4#5.0", "trip/rome.mp4#10.0"]
    assert {entry.moment: entry.id for entry in found.values()} == before
    assert {entry.folder for entry in found.values()} == {"trip"}


def test_a_removed_video_takes_its_entries_with_it(store, folder):
    textured(folder / "holiday.mp4.mp4", SCENES[:2])  # a name that begins like the other
    run(store, folder)
    (folder / "holiday.mp4").unlink()
    assert run(store, folder).removed == 3
    assert list(entries(store)) == ["holiday.mp4.mp4#0.0", "holiday.mp4.mp4#5.0"]


def test_the_entries_of_a_changed_video_are_those_of_its_present_frames(store, folder):
    run(store, folder)
    kept = entries(store)["holiday.mp4#0.0"].id
    textured(folder / "holiday.mp4", [(0, 200, 0)])
    result = run(store, folder)
    assert (result.encoded, result.removed) == (1, 2)
    found = entries(store)
    assert list(found) == ["holiday.mp4#0.0"]
    assert found["holiday.mp4#0.0"].id == kept


def test_two_equal_videos_are_decoded_once(store, folder):
    (folder / "copy.mp4").write_bytes((folder / "holiday.mp4").read_bytes())
    assert run(store, folder).encoded == 3
    assert len(entries(store)) == 6


def test_the_texts_beside_a_video_belong_to_its_first_frame(store, folder):
    run(store, folder)
    (folder / "holiday.txt").write_text("our days in Rome")
    result = run(store, folder)
    assert (result.encoded, result.texts_encoded) == (0, 1)
    first, *others = entries(store).values()
    assert store.captions([first.id]) == {first.id: ["our days in Rome"]}
    assert not any(store.captions([entry.id])[entry.id] for entry in others)


def test_frames_that_show_the_same_are_one_entry(store, folder):
    textured(folder / "holiday.mp4", [SCENES[0]] * 4)
    assert run(store, folder).encoded == 1


def test_a_damaged_video_keeps_the_frames_that_can_be_read_and_says_so(store, folder):
    rng = np.random.default_rng(0)
    whole = textured(folder / "holiday.mp4", [tuple(rng.integers(0, 255, 3)) for _ in range(12)]).read_bytes()
    (folder / "holiday.mp4").write_bytes(whole[: len(whole) // 2])
    result = run(store, folder)
    assert 2 <= result.encoded < 12
    ((key, reason),) = store.problems()
    last = list(entries(store).values())[-1].moment
    assert key == "holiday.mp4"
    assert reason == f"damaged or cut short: only frames up to 0:{int(last):02} can be read, which were kept"
    assert run(store, folder).encoded == 0
    assert len(store.problems()) == 1
    textured(folder / "holiday.mp4")
    run(store, folder)
    assert store.problems() == []
    assert len(entries(store)) == 3


def test_a_video_that_becomes_unreadable_takes_its_entries_with_it(store, folder):
    run(store, folder)
    (folder / "holiday.mp4").write_text("no longer a video")
    result = run(store, folder)
    assert result.removed == 3
    assert [key for key, _ in store.problems()] == ["holiday.mp4"]
    assert entries(store) == {}


def test_a_file_with_sound_only_is_skipped_with_the_reason(store, folder):
    sound(folder / "song.mp4")
    run(store, folder)
    assert store.problems() == [("song.mp4", "a video without pictures, only sound")]


def test_an_interrupted_video_leaves_nothing_half_done(store, folder, monkeypatch):
    interrupted = threading.Event()
    monkeypatch.setattr(ColourModel, "preprocess", lambda self, photo: interrupted.set() or np.zeros(3, np.float32))
    result = run(store, folder, interrupted=interrupted)
    assert result.interrupted
    assert store.counts()["image"] == 0
    assert result.files.waiting == 1
    monkeypatch.undo()
    assert run(store, folder).encoded == 3
    assert store.counts()["image"] == 3


def test_progress_counts_files(store, folder):
    textured(folder / "second.mp4", SCENES[:1])
    done = []
    run(store, folder, progress=lambda *numbers: done.append(numbers))
    assert done == [(1, 2), (2, 2)]


def test_videos_without_the_package_are_one_problem_and_keep_what_is_known(store, folder, monkeypatch):
    run(store, folder)
    textured(folder / "new.mov")
    with monkeypatch.context() as patch:
        patch.setattr(file_kinds, "_is_installed", lambda module: module != "av")
        patch.setitem(sys.modules, "av", None)
        result = run(store, folder)
        assert (result.encoded, result.removed) == (0, 0)
        assert store.problems() == [("*.mov", "1 file: pip install 'diptych[video]'")]
        assert len(entries(store)) == 3
    assert run(store, folder).encoded == 3  # another file, although its scenes are the same
    assert store.problems() == []


def test_the_reasons_of_errors():
    assert unreadable("a", PermissionError(13, "Permission denied")).reason == "cannot be read (Permission denied)"
    assert not unreadable("a", PermissionError(13, "Permission denied")).permanent
