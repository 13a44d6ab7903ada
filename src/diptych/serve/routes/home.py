"""/home and /folders: the images of an index by day, newest first, page by page, and its folders.

A cursor is the day and the id of the last image of a page, such as 2026-11-16.17. Images that are added or removed
meanwhile do not shift the pages that follow.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request, Response

from diptych.index.backend import Browsable
from diptych.index.search import Searcher
from diptych.serve.errors import RequestError
from diptych.serve.openapi import errors, parameters
from diptych.serve.reading import read_parameters
from diptych.serve.routes.search import CAPTIONS
from diptych.serve.schemas.answers import FoldersAnswer, HomeAnswer
from diptych.serve.schemas.fields import MAX_ID
from diptych.serve.schemas.requests import FolderParameters, HomeParameters
from diptych.serve.service import Service

IMAGES: dict[int | str, dict[str, Any]] = {200: {"model": HomeAnswer, "description": "The images, newest first"}}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for browsing."""

    @app.get("/home", responses={**IMAGES, **errors(404, 409, 422, 503)}, openapi_extra=parameters(HomeParameters))
    async def home(request: Request) -> Response:
        """Images by day, newest first."""
        options = read_parameters(request, HomeParameters)
        name = service.index_name(options.index)
        page = await service.run_in_thread(list_images, service.searchers[name], options)
        return Response(json.dumps({"index": name, **page}), media_type="application/json")

    @app.get(
        "/folders",
        response_model=FoldersAnswer,
        responses=errors(404, 409, 422, 503),
        openapi_extra=parameters(FolderParameters),
    )
    async def folders(request: Request) -> Any:
        """The folders directly in a folder."""
        options = read_parameters(request, FolderParameters)
        name = service.index_name(options.index)
        store = browsable(service.searchers[name])
        found = await service.run_in_thread(store.subfolders, options.parent)
        listed = [{"path": path, "images": images, "has_folders": deeper} for path, images, deeper in found]
        return {"index": name, "folders": listed}


def list_images(searcher: Searcher, options: HomeParameters) -> dict[str, Any]:
    """The images after a cursor, and the cursor of those that follow."""
    store, after = browsable(searcher), read_cursor(options.cursor)
    with searcher.store.reading():
        more = options.k + 1  # to know whether any follow
        places = store.newest(more, after, options.filters())
        shown = places[: options.k]
        ids = [id for _, id in shown]
        entries, captions = searcher.store.entries(ids), searcher.store.captions(ids)
    images = [
        {**entry.to_json(), "captions": captions[entry.id][:CAPTIONS], "day": day}
        for entry, (day, _) in zip(entries, shown, strict=True)
    ]
    return {"images": images, "next": _cursor(*shown[-1]) if len(places) > len(shown) else None}


def browsable(searcher: Searcher) -> Browsable:
    """The store of an index, if it can be browsed."""
    if not isinstance(searcher.store, Browsable):
        raise RequestError(409, "the backend of this index cannot list images by day; search it instead")
    return searcher.store


def read_cursor(cursor: str) -> tuple[str, int] | None:
    """The day and the id in a cursor; None for the first page."""
    if not cursor:
        return None
    day, _, id = cursor.rpartition(".")
    if not (
        id.isascii() and id.isdecimal() and len(id) <= 19 and 0 < int(id) <= MAX_ID and cursor == _cursor(day, int(id))
    ):
        raise RequestError(422, "cursor: not one that /home gave as next; leave it out to begin with the newest")
    return day, int(id)


def _cursor(day: str, id: int) -> str:
    return f"{day}.{id}"
