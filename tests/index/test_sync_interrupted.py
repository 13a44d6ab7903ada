"""A sync that is killed, interrupted or fails loses nothing, and the next one continues."""

import os
import signal
import subprocess
import sys
import time

import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index import update
from diptych.index.sqlite.database import Database
from diptych.index.sync import rebuild, sync
from support.own_engine import model_from
from support.photo_folders import FakeModel, draw, ids, put, sync_now, view


def test_a_killed_sync_continues(tmp_path, monkeypatch):
    folder, index = tmp_path / "photos", tmp_path / "index"
    for number in range(24):
        put(folder / f"{number:02}.png", number)
        put(folder / f"{number:02}.txt", f"text {number % 7}".encode())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # for the helpers in tests/support
    worker = subprocess.Popen([sys.executable, __file__, str(folder), str(index)], env=environment)
    deadline = time.monotonic() + 60
    while worker.poll() is None and time.monotonic() < deadline and not (index.exists() and 4 <= len(ids(index)) < 24):
        time.sleep(0.01)
    worker.kill()
    worker.wait()
    done = len(ids(index))
    assert 4 <= done < 24
    model = FakeModel()
    result = sync(model, str(folder), index)
    assert result.encoded == 24 - done
    assert result.kept == done
    assert view(index) == view(sync_now(folder, tmp_path / "now"))


def test_an_interrupted_sync_finishes_its_transaction(photos, tmp_path):
    def interrupt(done, _total):
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    result = sync(FakeModel(), str(photos), tmp_path / "index", workers=0, progress=interrupt)
    assert result.interrupted
    assert result.encoded == len(ids(tmp_path / "index")) == 4
    assert sync(FakeModel(), str(photos), tmp_path / "index").encoded == 5
    assert view(tmp_path / "index") == view(sync_now(photos, tmp_path / "now"))


def test_a_full_disk_is_one_line_and_finished_work_stays(photos, tmp_path, monkeypatch):
    opened = Database._open
    for number in range(9):
        draw(number, (320, 240)).save(photos / f"large-{number}.bmp")

    def small(self, mode):
        connection = opened(self, mode)
        ((pages,),) = connection.execute("PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        return connection

    monkeypatch.setattr(update, "IMAGES_PER_TRANSACTION", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "_open", small)
        with pytest.raises(IndexFileError, match="the disk is full; free some space and run the command again"):
            sync(FakeModel(), str(photos), tmp_path / "index")
    assert 0 < len(ids(tmp_path / "index")) < 18
    sync(FakeModel(), str(photos), tmp_path / "index")
    assert view(tmp_path / "index") == view(sync_now(photos, tmp_path / "now"))


def test_nothing_is_removed_because_a_disk_is_not_connected(photos, tmp_path, monkeypatch):
    index = tmp_path / "index"
    sync(FakeModel(), str(photos), index)
    before = view(index)
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = sync(FakeModel(), str(photos), index)
    assert (result.kept, result.removed, result.problems) == (9, 0, 1)
    model = model_from(FakeModel, "fake", lambda: FakeModel().identity)
    with pytest.raises(DataError, match=r"sub.* cannot be read, and its images would be lost"):
        rebuild(index, model)
    monkeypatch.undo()
    assert sync(FakeModel(), str(photos), index).problems == 0
    photos.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"cannot be read \(No such file.*is its disk connected\? Nothing was changed"):
        sync(FakeModel(), str(photos), index)
    photos.mkdir()
    with pytest.raises(DataError, match=r"contains no image, but the index has 9; is its disk connected\?"):
        sync(FakeModel(), str(photos), index)
    with pytest.raises(DataError, match="contains no image, but the index has 9"):
        rebuild(index, model)
    assert view(index) == before
    with pytest.raises(DataError, match="contains no files, so there is nothing to index"):
        sync(FakeModel(), str(photos), index, fresh=True)
    assert view(index) == before


if __name__ == "__main__":
    update.IMAGES_PER_TRANSACTION = 2
    sync(FakeModel(pause=0.05), sys.argv[1], sys.argv[2], workers=1)
