"""A service over a real index of a few generated photos, with a fake model."""

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2
import pytest
from starlette.testclient import TestClient

from diptych.serve.app import create_app
from diptych.serve.schemas.answers import SearchAnswer
from support.colours import FakeModel, fill, picture, searcher_of


def client_of(app):
    """A client of a service, in which an unexpected exception becomes a response."""
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


@contextmanager
def served(searchers, **options):
    """A client of a service over these indexes."""
    with client_of(create_app(searchers, **options)) as client:
        yield client


def together(app, addresses):
    """The responses to requests that are sent at the same time."""

    async def ask():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.get(address) for address in addresses))

    return asyncio.run(ask())


def keys(response):
    """The keys of the hits in a response, which must conform to its schema."""
    assert response.status_code == 200, response.text
    SearchAnswer.model_validate(response.json())  # the response is written without pydantic
    return [hit["key"] for hit in response.json()["hits"]]


def error_of(response, status):
    """The one sentence of an error response."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    assert body["error"]
    assert "\n" not in body["error"]
    return body["error"]


SCOPE = {
    "type": "http",
    "method": "HEAD",
    "scheme": "http",
    "query_string": b"",
    "headers": [(b"host", b"127.0.0.1")],
}


@pytest.fixture(scope="session")
def kit():
    """Helpers to make and to use services."""
    return SimpleNamespace(
        FakeModel=FakeModel,
        SCOPE=SCOPE,
        client_of=client_of,
        error_of=error_of,
        fill=fill,
        keys=keys,
        picture=picture,
        searcher_of=searcher_of,
        served=served,
        together=together,
    )


@pytest.fixture
def folder(tmp_path):
    fill(tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def searcher(folder, tmp_path):
    searcher = searcher_of(folder, tmp_path / "photos.diptych")
    yield searcher
    searcher.store.close()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a service that no test changes."""
    place = tmp_path_factory.mktemp("client")
    fill(place / "photos")
    searcher = searcher_of(place / "photos", place / "photos.diptych")
    with served({"photos": searcher}) as client:
        client.searcher = searcher
        yield client
    searcher.store.close()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two indexes of one model."""
    place = tmp_path_factory.mktemp("two")
    model = FakeModel()
    fill(place / "first")
    fill(place / "second", names=("blue", "red"))
    files = {name: place / f"{name}.diptych" for name in ("first", "second")}
    return {name: searcher_of(place / name, file, model) for name, file in files.items()}
