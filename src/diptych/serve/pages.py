"""The page and its files: a fixed list, read when the service starts."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Response

from diptych.serve.errors import RefusedError

FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def add_routes(app: FastAPI) -> None:
    """Add the page and its files; a name that is not on the list opens nothing."""
    files = {file.name: file.read_bytes() for file in sorted(FOLDER.glob("*")) if file.suffix in TYPES}

    def sent(name: str) -> Response:
        if name not in files:
            raise RefusedError(404, "the page has no such file")
        headers = {"Content-Type": TYPES[Path(name).suffix], "Cache-Control": "no-cache"}
        return Response(files[name], headers=headers)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return sent("index.html")

    @app.get("/page/{file:path}", include_in_schema=False)
    async def file(file: str) -> Response:
        return sent(file)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)
