"""/entry: all that the index knows about one image."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request

from diptych.index.albums import FAVOURITES, AlbumStore
from diptych.index.details import DetailedStore, ImageDetails
from diptych.index.entries import Entry
from diptych.index.search import Searcher
from diptych.serve.middleware import is_local
from diptych.serve.openapi import errors, parameters
from diptych.serve.reading import read_parameters
from diptych.serve.routes.entries import file_within, image_entry, parse_id
from diptych.serve.schemas.answers import EntryDetails
from diptych.serve.schemas.requests import EntryParameters
from diptych.serve.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route about an entry's details."""

    @app.get(
        "/entry/{id:path}",
        response_model=EntryDetails,
        responses=errors(404, 422, 503),
        openapi_extra=parameters(EntryParameters),
    )
    async def entry(request: Request, id: str) -> Any:
        """All that is known about an image; the id of a text stands for its image."""
        searcher = service.searcher(read_parameters(request, EntryParameters).index)
        return await service.run_in_thread(describe_image, searcher, parse_id(id), is_local(request.scope))


def describe_image(searcher: Searcher, id: int, local: bool) -> dict[str, Any]:
    """An image with its details, captions and albums; where its file is, only for clients on this machine."""
    store = searcher.store
    with store.reading():
        entry = image_entry(searcher, id)
        details = details_of(searcher, entry)
        albums = store.album_names(entry.id) if isinstance(store, AlbumStore) else {}
        captions = store.captions([entry.id])[entry.id]
    return {
        **entry.to_json(),
        **asdict(details),
        "captions": captions,
        "favourite": FAVOURITES in albums,
        "albums": [{"id": album, "name": name} for album, name in albums.items() if album != FAVOURITES],
        "has_file": file_within(store.spec, entry) is not None,
        "path": str(Path(entry.path).absolute()) if local and entry.path is not None else None,
    }


def details_of(searcher: Searcher, entry: Entry) -> ImageDetails:
    """The details of an image; a backend that keeps none only knows its day."""
    if isinstance(searcher.store, DetailedStore):
        return searcher.store.details(entry.id)
    return ImageDetails(taken=entry.taken, day=entry.taken)
