"""The service as an ASGI application: which routes there are, and what every request passes on its way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from diptych import __version__
from diptych.index.search import Searcher
from diptych.serve import about, explaining, pages, pictures, searching
from diptych.serve.errors import add_handlers
from diptych.serve.guard import LOCAL, Guard
from diptych.serve.methods import Heads
from diptych.serve.metrics import Measured
from diptych.serve.schemas import Problem
from diptych.serve.service import Service


def create_app(indexes: Mapping[str, Searcher], hosts: Iterable[str] = ()) -> FastAPI:
    """The service over some indexes by their names, the first of which is the default.

    It answers to the names of this machine's loopback, and to `hosts`.
    """
    service = Service(indexes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Diptych",
        version=__version__,
        description="Search images and texts, both ways.",
        docs_url=None,  # they would load their page from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    for room in (searching, pictures, explaining, about):
        room.add_routes(app, service)
    pages.add_routes(app)
    add_handlers(app)
    app.add_middleware(Heads)
    app.add_middleware(Guard, hosts=(*LOCAL, *hosts))
    app.add_middleware(Measured, metrics=service.metrics)  # the last is the outermost
    _document(app)
    return app


def _document(app: FastAPI) -> None:
    """Add the one form of all errors to the OpenAPI document, where the routes point to it."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            made.setdefault("components", {}).setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
