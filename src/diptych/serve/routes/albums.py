"""/albums and /favourites: albums of images, which the index keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

from diptych.index.albums import FAVOURITES, AlbumEditor, AlbumStore, clean_name
from diptych.index.search import Searcher
from diptych.serve.errors import RequestError
from diptych.serve.openapi import errors, json_body, parameters
from diptych.serve.reading import parse_json, read_json, read_parameters
from diptych.serve.schemas.answers import AlbumAbout, AlbumChange, AlbumName, AlbumsAnswer
from diptych.serve.schemas.fields import MAX_CHOSEN, MAX_ID
from diptych.serve.schemas.requests import AlbumBody, ChosenBody, EntryParameters, FavouritesBody
from diptych.serve.service import Service

BODY_BYTES = 2**18
TOO_LARGE = f"the body is larger than {BODY_BYTES >> 10} kB; send at most {MAX_CHOSEN:,} ids"
PROBLEMS = errors(404, 408, 409, 413, 415, 422, 503)

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for albums."""
    _add_list(app, service)
    _add_changes(app, service)
    _add_members(app, service)


def _add_list(app: FastAPI, service: Service) -> None:
    in_url = parameters(EntryParameters)

    @app.get("/albums", response_model=AlbumsAnswer, responses=errors(404, 409, 422, 503), openapi_extra=in_url)
    async def albums(request: Request) -> Any:
        """All albums."""
        name = service.index_name(read_parameters(request, EntryParameters).index)
        store = editable(service.searchers[name])
        return {"index": name, "albums": [asdict(album) for album in await service.run_in_thread(store.albums)]}

    @app.post(
        "/albums",
        status_code=201,
        response_model=AlbumAbout,
        responses=PROBLEMS,
        openapi_extra={**in_url, **json_body(AlbumBody)},
    )
    async def create(request: Request) -> Any:
        """Create an album."""
        name = clean_name((await read_body(request, AlbumBody)).name)
        album = await edit(service, request, lambda editor: editor.create(name))
        return {"id": album, "name": name, "images": 0, "missing": 0, "cover": None}


def _add_changes(app: FastAPI, service: Service) -> None:
    in_url = parameters(EntryParameters)

    @app.patch(
        "/albums/{id}",
        response_model=AlbumName,
        responses=PROBLEMS,
        openapi_extra={**in_url, **json_body(AlbumBody)},
    )
    async def rename(request: Request, id: str) -> Any:
        """Give an album another name."""
        album, name = parse_album(id), clean_name((await read_body(request, AlbumBody)).name)
        await edit(service, request, lambda editor: editor.rename(album, name))
        return {"id": album, "name": name}

    @app.delete(
        "/albums/{id}",
        status_code=204,
        response_class=Response,
        responses=errors(404, 409, 422, 503),
        openapi_extra=in_url,
    )
    async def delete(request: Request, id: str) -> Response:
        """Delete an album; its images stay in the index."""
        album = parse_album(id)
        await edit(service, request, lambda editor: editor.delete(album))
        return Response(status_code=204)


def _add_members(app: FastAPI, service: Service) -> None:
    in_url = parameters(EntryParameters)
    chosen = {**in_url, **json_body(ChosenBody)}
    marked = {**in_url, **json_body(FavouritesBody)}

    @app.post("/albums/{id}/images", response_model=AlbumChange, responses=PROBLEMS, openapi_extra=chosen)
    async def add(request: Request, id: str) -> Any:
        """Add images to an album."""
        album, ids = parse_album(id), (await read_body(request, ChosenBody)).ids
        return {"id": album, "changed": await edit(service, request, lambda editor: editor.add(album, ids))}

    @app.post("/albums/{id}/remove", response_model=AlbumChange, responses=PROBLEMS, openapi_extra=chosen)
    async def remove(request: Request, id: str) -> Any:
        """Remove images from an album; they stay in the index."""
        album, ids = parse_album(id), (await read_body(request, ChosenBody)).ids
        return {"id": album, "changed": await edit(service, request, lambda editor: editor.remove(album, ids))}

    @app.post("/favourites", response_model=AlbumChange, responses=PROBLEMS, openapi_extra=marked)
    async def favourites(request: Request) -> Any:
        """Add images to the favourites, or remove them."""
        asked = await read_body(request, FavouritesBody)

        def change(editor: AlbumEditor) -> int:
            return (editor.add if asked.favourite else editor.remove)(FAVOURITES, asked.ids)

        return {"id": FAVOURITES, "changed": await edit(service, request, change)}


async def edit(service: Service, request: Request, change: Callable[[AlbumEditor], Result]) -> Result:
    """Change the albums of the index that the URL of a request names."""
    store = editable(service.searcher(read_parameters(request, EntryParameters).index))

    def run() -> Result:
        with store.edit_albums() as editor:
            return change(editor)

    return await service.run_in_thread(run)


def editable(searcher: Searcher) -> AlbumStore:
    """The store of an index, if it keeps albums."""
    if not isinstance(searcher.store, AlbumStore):
        raise RequestError(409, "the backend of this index keeps no albums; use an index in a file")
    return searcher.store


async def read_body(request: Request, model: type[Body]) -> Body:
    """The JSON body of a request."""
    return parse_json(await read_json(request, BODY_BYTES, TOO_LARGE), model)


def parse_album(text: str) -> int:
    """The id of an album in a path."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= MAX_ID):
        raise RequestError(404, "no such album; an album is named by its id, such as /albums/1")
    return int(text)
