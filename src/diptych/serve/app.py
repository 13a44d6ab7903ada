"""The service as an ASGI application: its routes, its middleware, and the files of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Response

from diptych import __version__
from diptych.index.search import Searcher
from diptych.serve.errors import RequestError, add_error_handlers
from diptych.serve.metrics import MeasureRequests
from diptych.serve.middleware import LOOPBACK, Guard, HeadAsGet
from diptych.serve.openapi import document_errors
from diptych.serve.routes import albums, details, encode, entries, examples, export, home, info, originals, search
from diptych.serve.service import Service

PAGE_FOLDER = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def create_app(indexes: Mapping[str, Searcher], hosts: Iterable[str] = ()) -> FastAPI:
    """The service over indexes by their names; the first is the default.

    Requests must name a loopback host or one of `hosts`.
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
        docs_url=None,  # FastAPI's documentation pages load scripts from another host; the page has its own
        redoc_url=None,
        lifespan=lifespan,
    )
    for routes in (search, home, examples, encode, entries, details, originals, albums, export, info):
        routes.add_routes(app, service)
    _add_page(app)
    add_error_handlers(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, hosts=(*LOOPBACK, *hosts))
    app.add_middleware(MeasureRequests, metrics=service.metrics)  # the last one added is the outermost
    document_errors(app)
    return app


def _add_page(app: FastAPI) -> None:
    """Add the page and its files, which are read once; no other name opens a file."""
    files = read_page()

    def respond(name: str) -> Response:
        if name not in files:
            raise RequestError(404, "the page has no such file")
        headers = {"Content-Type": PAGE_TYPES[Path(name).suffix], "Cache-Control": "no-cache"}
        return Response(files[name], headers=headers)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return respond("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return respond("docs.html")

    @app.get("/page/{file:path}", include_in_schema=False)
    async def file(file: str) -> Response:
        return respond(file)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)


def read_page() -> dict[str, bytes]:
    """The files of the page by their names; documents share the beginning that head.html has."""
    files = {file.name: file.read_bytes() for file in sorted(PAGE_FOLDER.glob("*")) if file.suffix in PAGE_TYPES}
    head = files.pop("head.html")
    return {name: content.replace(b"<!-- head.html -->\n", head) for name, content in files.items()}
