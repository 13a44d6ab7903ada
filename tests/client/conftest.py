"""A client of the real service on loopback; only the model is fake."""

import threading
import time

import pytest
import uvicorn

import diptych
from diptych.serve.app import create_app
from support.colours import fill, searcher_of


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    fill(folder / "photos")
    searcher = searcher_of(folder / "photos", folder / "photos.diptych")
    yield searcher
    searcher.store.close()


@pytest.fixture(scope="module")
def client(searcher):
    config = uvicorn.Config(create_app({"photos": searcher}), port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with diptych.Client(f"http://127.0.0.1:{port}/") as client:
        yield client
    server.should_exit = True
    thread.join()
