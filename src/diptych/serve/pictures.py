"""/image: thumbnails out of the index, large pictures out of the folder that was indexed, and nothing beside it."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

from fastapi import FastAPI, Request, Response
from PIL import Image

from diptych.data.images import decode
from diptych.errors import ImageError
from diptych.index.entries import Entry
from diptych.index.search import Searcher
from diptych.serve.asked import asked, parameters
from diptych.serve.errors import RefusedError
from diptych.serve.schemas import LARGEST, PictureInAddress, errors
from diptych.serve.service import Service, entry_of

SIDE = 1600  # of a large picture, at most
QUALITY = 88


class Jpeg(Response):
    """A picture."""

    media_type = "image/jpeg"


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route of pictures."""

    @app.get(
        "/image/{id:path}",
        response_class=Jpeg,
        responses={304: {"description": "As it was"}, **errors(404, 422, 503)},
        openapi_extra=parameters(PictureInAddress),
    )
    async def image(request: Request, id: str) -> Response:
        """The picture of an entry as JPEG, made anew; that of a text is its image's."""
        wanted = asked(request, PictureInAddress)
        searcher = service.searchers[service.named(wanted.index)]
        number = entry_number(id)
        made = await service.in_thread(large if wanted.size == "large" else thumbnail, searcher, number)
        return tagged(made, request.headers.get("if-none-match", ""))


def tagged(picture: bytes, had: str) -> Jpeg:
    """A picture that a browser asks after each time, because an id may be another's tomorrow; sent if it has another.

    `had` is the header If-None-Match.
    """
    tag = f'"{hashlib.sha256(picture).hexdigest()[:32]}"'
    headers = {"Cache-Control": "private, no-cache", "ETag": tag}
    if tag in (each.strip().removeprefix("W/") for each in had.split(",")):
        return Jpeg(status_code=304, headers=headers)
    return Jpeg(picture, headers=headers)


def entry_number(said: str) -> int:
    """An id as a client wrote it; whatever else stands there is refused before anything is read."""
    if not (said.isascii() and said.isdecimal() and len(said) <= 19 and 0 < int(said) <= LARGEST):
        raise RefusedError(404, "no such entry; an image is named by its id, such as /image/1")
    return int(said)


def thumbnail(searcher: Searcher, number: int) -> bytes:
    """The small picture that the index keeps."""
    entry_of(searcher, number)
    kept = searcher.store.thumbnail(number)
    if kept is None:
        raise RefusedError(404, f"entry {number} has no picture")
    return kept


def large(searcher: Searcher, number: int) -> bytes:
    """The picture in its file, decoded and encoded anew; one that has no file is as large as the index keeps it."""
    entry = shown(searcher, number)
    if entry.path is None:
        return thumbnail(searcher, entry.id)
    return jpeg(photo_of(searcher, entry))


def shown(searcher: Searcher, number: int) -> Entry:
    """The image of an entry: itself, or that of a text."""
    entry = entry_of(searcher, number)
    if entry.image is None:
        raise RefusedError(404, f"entry {number} has no picture")
    return entry if entry.image == entry.id else entry_of(searcher, entry.image)


def photo_of(searcher: Searcher, entry: Entry) -> Image.Image:
    """The photo in an entry's file, at most about twice as large as it is shown, or a refusal."""
    file = file_within(searcher.store.spec.root, entry)
    if file is None:
        raise RefusedError(404, f"{entry.key}: the file is not there any more; only its thumbnail is left")
    try:
        return decode(file, SIDE // 2)
    except ImageError:
        raise RefusedError(404, f"{entry.key}: the file cannot be read as an image any more") from None


def file_within(root: str | None, entry: Entry) -> Path | None:
    """The real place of an entry's file, if it is an ordinary file that really lies in the folder that was indexed."""
    if root is None or entry.path is None:
        return None
    try:
        folder = Path(root).resolve(strict=True)
        file = (folder / entry.path).resolve(strict=True)
        return file if file.is_relative_to(folder) and file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # gone, a name that no file can have, links in a circle
        return None


def jpeg(photo: Image.Image) -> bytes:
    """A photo as JPEG within the largest size, without whatever else its file said."""
    small = photo.copy()
    small.info = {}
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()
