import threading

import pytest
import uvicorn
from fastapi import FastAPI

from diptych.serve.running import noted_service, running_service
from diptych.serve.startup import listen, url_of


@pytest.fixture
def server():
    """Serves an app in a thread, for as long as the test runs."""
    ends = []

    def serve(app):
        listening = listen("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        ends.append((server, thread, listening))
        return url_of(listening)

    yield serve
    for running, thread, listening in ends:
        running.should_exit = True
        thread.join()
        listening.close()


def test_a_running_service_is_found_by_its_index(tmp_path, server):
    index, app = tmp_path / "a.diptych", FastAPI()
    url = server(app)
    assert running_service(index) is None
    with noted_service(index, app, url):
        assert running_service(index) == url
        assert running_service(tmp_path / "b.diptych") is None
    assert running_service(index) is None
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_service_has_left_is_ignored(tmp_path, server):
    index = tmp_path / "a.diptych"
    note = tmp_path / ".a.diptych.service"
    with noted_service(index, FastAPI(), server(FastAPI())):  # another service has taken over the address
        assert running_service(index) is None
    free = listen("127.0.0.1", 0)
    free.close()
    for left in (
        "",
        "no JSON",
        "[]",
        '{"url": "http://127.0.0.1:1", "token": "x"}',
        '{"url": "http://[", "token": "x"}',
    ):
        note.write_text(left)
        assert running_service(index) is None
