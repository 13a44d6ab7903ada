"""/original and /reveal: the file of an image as it is, to download or to open, and the folder that it is in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.responses import FileResponse

from diptych.errors import DataError
from diptych.index.entries import Entry
from diptych.index.search import Searcher
from diptych.serve.errors import RequestError
from diptych.serve.media_types import BEGINNING, SHOWN, media_type
from diptych.serve.middleware import is_local
from diptych.serve.openapi import errors, json_body, parameters
from diptych.serve.reading import parse_json, read_json, read_parameters
from diptych.serve.reveal import reveal
from diptych.serve.routes.entries import file_within, image_entry, jpeg_response, large_picture, parse_id
from diptych.serve.schemas.requests import EntryParameters, OriginalParameters, RevealBody
from diptych.serve.service import Service

HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; "
    "style-src 'unsafe-inline'; frame-ancestors 'self'",
}
REVEAL_BYTES = 2**12
_RANGE = re.compile(r"\s*(?:(\d{1,18})-(\d{1,18})?|-(\d{1,18}))\s*", re.ASCII)
FILE = {"*/*": {"schema": {"type": "string", "format": "binary"}}}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for files."""
    _add_reveal(app, service)

    @app.get(
        "/original/{id:path}",
        response_class=Response,
        responses={
            200: {"description": "The file", "content": FILE},
            206: {"description": "A part of the file", "content": FILE},
            304: {"description": "Not modified"},
            **errors(404, 409, 416, 422, 503),
        },
        openapi_extra=parameters(OriginalParameters),
    )
    async def original(request: Request, id: str) -> Response:
        """The file of an image; the id of a text stands for its image."""
        options = read_parameters(request, OriginalParameters)
        searcher = service.searcher(options.index)
        return await service.run_in_thread(send_original, searcher, parse_id(id), options.inline, request.headers)


def _add_reveal(app: FastAPI, service: Service) -> None:
    @app.post(
        "/reveal",
        status_code=204,
        response_class=Response,
        responses=errors(404, 408, 409, 413, 415, 422, 503),
        openapi_extra={**parameters(EntryParameters), **json_body(RevealBody)},
    )
    async def show_in_folder(request: Request) -> Response:
        """Show the file of an image in its folder, on the machine of the service and for its users only."""
        if not is_local(request.scope):
            raise RequestError(403, "a folder can only be opened from the machine that the service runs on")
        searcher = service.searcher(read_parameters(request, EntryParameters).index)
        content = await read_json(request, REVEAL_BYTES, "the body is too large; send one id")
        await service.run_in_thread(reveal_image, searcher, parse_json(content, RevealBody).id)
        return Response(status_code=204)


def reveal_image(searcher: Searcher, id: int) -> None:
    """Show the file of an image in its folder."""
    try:
        reveal(original_file(searcher, image_entry(searcher, id)))
    except DataError as reason:
        raise RequestError(409, str(reason)) from None


def send_original(searcher: Searcher, id: int, inline: bool, headers: Headers) -> Response:
    """The file to download or, with `inline`, to be shown: as it is, or as JPEG if browsers do not show its format."""
    entry = image_entry(searcher, id)
    file = original_file(searcher, entry)
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            kind = media_type(opened.read(BEGINNING))
    except OSError as reason:
        raise RequestError(404, f"{entry.key}: the file cannot be read ({reason.strerror})") from None
    if_none_match = headers.get("if-none-match", "")
    if inline and kind not in SHOWN:
        return jpeg_response(large_picture(searcher, entry.id), if_none_match)
    response = FileResponse(
        file,
        headers=HEADERS,
        media_type=kind,
        filename=file.name.encode("utf-8", "replace").decode(),
        stat_result=status,
        content_disposition_type="inline" if inline else "attachment",
    )
    if response.headers["etag"] in (known.strip().removeprefix("W/") for known in if_none_match.split(",")):
        return Response(status_code=304, headers={**HEADERS, "ETag": response.headers["etag"]})
    if "range" in headers and "if-range" not in headers:
        check_range(headers["range"], status.st_size)
    return response


def check_range(wanted: str, size: int) -> None:
    """Refuse a range of bytes that a file of this size does not have."""
    unit, _, ranges = wanted.partition("=")
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        first, last, suffix = found.groups() if found else (None, None, None)
        within = first is not None and int(first) < size and (last is None or int(first) <= int(last))
        if unit.strip().lower() != "bytes" or not (within or (size and int(suffix or 0))):
            raise RequestError(416, f"the range {wanted[:100]!r} is not in the file, which has {size:,} bytes")


def original_file(searcher: Searcher, entry: Entry) -> Path:
    """The file of an image, which must be inside the indexed folder; a RequestError if there is none."""
    if entry.path is None:
        raise RequestError(409, f"{entry.key}: the image is not in a file; only its picture can be shown")
    file = file_within(searcher.store.spec, entry)
    if file is None:
        raise RequestError(404, f"{entry.key}: the file no longer exists; only its thumbnail is left")
    return file
