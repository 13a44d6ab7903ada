"""Workers as processes of their own, over an index of a few photos with the starter."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import httpx2
import pytest
from PIL import Image

from diptych.errors import DiptychError
from diptych.serve import workers
from diptych.serve.workers import Ready, ServiceOptions, serve_with_workers

OPTIONS = ServiceOptions(("photos.diptych",))


def eventually(check, seconds=40):
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def children(process):
    """The processes that serve; Python starts another one, which tracks resources."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found if "spawn_main" in command_of(child)]


def command_of(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:  # it has just ended
        return ""


def maps_vectors(process):
    return "photos.diptych.image.vectors" in Path(f"/proc/{process}/maps").read_text()


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def serving(index, workers=2):
    command = [sys.executable, "-m", "diptych", "serve", str(index), "--workers", str(workers), "--port", "0"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    from diptych.index.sync import sync
    from diptych.model import Model

    folder = tmp_path_factory.mktemp("workers")
    for number, colour in enumerate(("red", "green", "blue")):
        Image.new("RGB", (20, 20), colour).save(folder / f"{number}.png")
    sync(Model.load("starter", "cpu", quality="fast"), str(folder), folder / "photos.diptych")
    return folder / "photos.diptych"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_workers_share_vectors_and_counts_and_are_started_again_when_they_die(index):
    process = serving(index)
    try:
        line = process.stdout.readline()
        url = re.fullmatch(r"serving photos with 2 workers at (http://127\.0\.0\.1:\d+)\n", line).group(1)
        first, second = eventually(lambda: len(children(process.pid)) == 2 and children(process.pid))

        def search(number):
            return httpx2.get(f"{url}/search", params={"text": f"{number} dogs", "k": 2}, timeout=30)

        eventually(lambda: maps_vectors(first) and maps_vectors(second))
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(search, range(16)))
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.json()["searched"] for answer in answers} == {3}
        counted = 'diptych_requests_total{route="/search",status="200"} %d.0'
        for _ in range(6):  # whichever worker answers
            metrics = httpx2.get(f"{url}/metrics", timeout=30).text
            assert counted % 16 in metrics
            assert 'diptych_entries{index="photos",kind="image"} 3.0' in metrics

        os.kill(first, signal.SIGKILL)
        assert [search(number).status_code for number in range(16, 20)] == [200] * 4  # the other one answers
        again = eventually(lambda: first not in (now := children(process.pid)) and len(now) == 2 and now)
        assert second in again
        eventually(lambda: all(map(maps_vectors, again)))
        assert counted % 20 in httpx2.get(f"{url}/metrics", timeout=30).text  # what the dead one counted is kept

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "")
    death = rf"worker 1 \(process {first}\) ended unexpectedly: killed by signal 9; it is started again\nended\n"
    assert re.fullmatch(death, err)
    assert not any(map(is_running, again))


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_workers_end_with_the_process_that_started_them(index):
    process = serving(index)
    try:
        own = eventually(lambda: children(process.pid))  # while they start
    finally:
        process.kill()
        process.communicate()
    eventually(lambda: not any(map(is_running, own)))


def test_an_error_at_the_start_is_said_once(tmp_path):
    process = serving(tmp_path / "none.diptych", 3)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.count("no such index; make one: diptych index") == 1
    assert len(err.splitlines()) == 1


class FakeWorker:
    """A worker that says what it is told to say, each time that it is started."""

    started = 0
    script = ()

    def __init__(self, number, _options, _listening):
        self.number = number
        type(self).started += 1
        self.connection = mock.Mock()
        self.process = mock.Mock(exitcode=1)
        self._says = list(self.script)

    def receive(self):
        return self._says.pop(0) if self._says else None

    def describe_end(self):
        return f"worker {self.number} (process 4711) ended unexpectedly: exit status 1"


@pytest.fixture
def fake(monkeypatch):
    FakeWorker.started, FakeWorker.script = 0, (Ready(("photos",), ("a note",)),)
    monkeypatch.setattr(workers, "_Worker", FakeWorker)
    monkeypatch.setattr(workers, "wait", lambda connections, _seconds: list(connections))
    return FakeWorker


def test_workers_that_keep_dying_end_the_service(fake):
    told, ready = [], []
    with pytest.raises(DiptychError, match=r"exit status 1; workers have died 10 times within a minute, so all end$"):
        serve_with_workers(OPTIONS, 2, None, threading.Event(), on_ready=ready.append, tell=told.append)
    assert ready == [Ready(("photos",), ("a note",))]
    assert len(told) == 9
    assert told[0] == "worker 1 (process 4711) ended unexpectedly: exit status 1; it is started again"
    assert fake.started == 2 + 9
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


def test_a_first_worker_that_ends_without_a_word_ends_the_service(fake):
    fake.script = ()
    with pytest.raises(DiptychError, match=r"ended unexpectedly: exit status 1$"):
        serve_with_workers(OPTIONS, 2, None, threading.Event(), on_ready=None, tell=None)
    assert fake.started == 1


def test_a_service_that_is_stopped_while_it_starts_starts_no_more_workers(fake):
    stop = threading.Event()
    stop.set()
    serve_with_workers(OPTIONS, 2, None, stop, on_ready=None, tell=None)
    assert fake.started == 1
