"""A watch updates after every change, survives folders that vanish, and loses nothing that happens during an update."""

import queue
import threading
from contextlib import contextmanager

import pytest

from diptych.errors import DataError
from diptych.index import watch as watching
from diptych.index.search import open_store
from diptych.index.sources.resolve import SourceRequest
from diptych.index.sources.selection import Selection
from diptych.index.spec import IndexSpec
from diptych.index.sync import SyncOptions, SyncResult, sync, sync_sources
from diptych.index.watch import Watch, can_notify, is_relevant
from support.pictures import save_photo

WAIT = 30  # seconds; far more than any step takes


@pytest.fixture
def photos(tmp_path, monkeypatch):
    for name, seconds in (("_WAKE_SECONDS", 0.05), ("_QUIET_SECONDS", 0.02), ("_RETRY_SECONDS", 0.1)):
        monkeypatch.setattr(watching, name, seconds)
    folder = tmp_path / "photos"
    folder.mkdir()
    save_photo(folder / "0.png", 0)
    return folder


@contextmanager
def running(index, model, poll=None, update=None):
    """A watch in a thread; the block gets its reports as a queue."""
    store, stop, reports = open_store(index), threading.Event(), queue.Queue()
    options = SyncOptions(0, stop=stop)
    watch = Watch(
        lambda: store.spec,
        str(index),
        update or (lambda: sync_sources(model, SourceRequest(), index, options=options)),
        reports.put,
        poll,
    )
    thread = threading.Thread(target=watch.run, args=(stop,))
    thread.start()
    try:
        yield reports
    finally:
        stop.set()
        thread.join(WAIT)
        store.close()
    assert not thread.is_alive()


def next_change(reports):
    """The next report that is an error or that something has changed."""
    while True:
        report = reports.get(timeout=WAIT)
        if isinstance(report, str) or report.encoded or report.removed or report.renamed:
            return report


@pytest.mark.parametrize("poll", [None, 0.05])
def test_changes_are_indexed(photos, tmp_path, kit, poll):
    if poll is None:
        pytest.importorskip("watchfiles")
    index = photos / "x.diptych"  # in the folder that is watched
    sync(kit.FakeModel(), str(photos), index)
    with running(index, kit.FakeModel(), poll) as reports:
        assert reports.get(timeout=WAIT).encoded == 0
        (photos / "new").mkdir()
        save_photo(photos / "new" / "1.png", 1)
        assert next_change(reports).encoded == 1
        (photos / "new" / "1.png").unlink()
        assert next_change(reports).removed == 1


@pytest.mark.parametrize("poll", [None, 0.05])
def test_a_folder_that_vanishes_is_waited_for(photos, tmp_path, kit, poll):
    if poll is None:
        pytest.importorskip("watchfiles")
    index = tmp_path / "x.diptych"
    sync(kit.FakeModel(), str(photos), index)
    with running(index, kit.FakeModel(), poll) as reports:
        assert reports.get(timeout=WAIT).encoded == 0
        photos.rename(tmp_path / "pocket")
        assert "is its disk connected? Nothing was changed" in next_change(reports)
        save_photo(tmp_path / "pocket" / "1.png", 1)
        (tmp_path / "pocket").rename(photos)
        assert next_change(reports).encoded == 1
        save_photo(photos / "2.png", 2)  # the folder that came back is watched
        assert next_change(reports).encoded == 1
    store = open_store(index)
    assert store.counts()["image"] == 3
    store.close()


def test_a_change_during_an_update_is_not_lost(photos, tmp_path, kit):
    pytest.importorskip("watchfiles")
    index = tmp_path / "x.diptych"
    sync(kit.FakeModel(), str(photos), index)
    updates = []

    def update():
        result = sync_sources(kit.FakeModel(), SourceRequest(), index, options=SyncOptions(0))
        updates.append(result)
        if len(updates) == 1:
            save_photo(photos / "late.png", 5)  # after the folder was listed
        return result

    with running(index, kit.FakeModel(), update=update) as reports:
        assert next_change(reports).encoded == 1


def test_an_error_is_reported_once_and_tried_again(photos, tmp_path, kit):
    index = tmp_path / "x.diptych"
    sync(kit.FakeModel(), str(photos), index)
    outcomes = iter([DataError("locked"), DataError("locked"), SyncResult(1, 0, 0, 0, 0, 0)])

    def update():
        outcome = next(outcomes, SyncResult(0, 0, 0, 0, 0, 0))
        if isinstance(outcome, DataError):
            raise outcome
        return outcome

    with running(index, kit.FakeModel(), 0.05, update) as reports:
        assert reports.get(timeout=WAIT) == "locked"
        assert reports.get(timeout=WAIT).encoded == 1


def test_which_changes_matter(photos):
    index, roots = str(photos / "x.diptych"), [str(photos)]
    (photos / "letter.pdf").touch()
    selection = Selection(("private/",))
    relevant = {"a.jpg", "s/a.JPG", "s/a.txt", "film.mov", "vanished folder"}
    for name in (
        *relevant,
        "film.mov",
        ".hidden.jpg",
        "@eaDir/a.jpg",
        "private/a.jpg",
        "x.diptych-wal",
        ".x.diptych.lock",
    ):
        assert is_relevant(f"{photos}/{name}", roots, selection, index) == (name in relevant), name
    assert is_relevant(str(photos), roots, selection, index)
    assert not is_relevant("/elsewhere/a.jpg", roots, selection, index)
    assert is_relevant(f"{photos}/holiday-1.jpg", roots, selection, f"{photos}/holiday")  # an index without an ending
    assert not is_relevant(f"{photos}/holiday-wal", roots, selection, f"{photos}/holiday")


def test_notifications_are_for_folders_without_followed_links(monkeypatch):
    monkeypatch.setattr(watching, "find_spec", lambda _: object())
    made = "m", "i", 4, False, "float32"
    assert can_notify(IndexSpec(*made, "/a", "/a", "0"))
    assert can_notify(IndexSpec(*made, "/a, /b", None, "0", (("a", "/a"), ("b", "/b"))))
    assert not can_notify(IndexSpec(*made, "/a", "/a", "0", selection=Selection(follow_links=True)))
    assert not can_notify(IndexSpec(*made, "/a/captions.csv", "/a", "0"))
    monkeypatch.setattr(watching, "find_spec", lambda _: None)
    assert not can_notify(IndexSpec(*made, "/a", "/a", "0"))
