"""/export: the files of many images as a ZIP, or a list of where they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse

from diptych.errors import DataError, NotFoundError
from diptych.index.backend import IndexStore
from diptych.index.entries import Entry
from diptych.index.frames import file_key
from diptych.index.search import Searcher
from diptych.serve.archive import zip_stream
from diptych.serve.errors import RequestError
from diptych.serve.middleware import is_local
from diptych.serve.openapi import body, errors, inlined, parameters
from diptych.serve.reading import declared_type, parse_json, read_json, read_parameters
from diptych.serve.routes.entries import file_within
from diptych.serve.schemas.fields import MAX_CHOSEN
from diptych.serve.schemas.requests import EntryParameters, ExportBody
from diptych.serve.service import Service
from diptych.serve.uploads import read_body
from diptych.text.control_characters import has_control_characters

BODY_BYTES = 2**19
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
FORM_SCHEMA = {
    "type": "object",
    "properties": {"body": {"type": "string", "description": "The same as JSON"}},
    "required": ["body"],
}
ZIP, TEXT = "application/zip", "text/plain; charset=utf-8"
CONTENT = {
    "application/zip": {"schema": {"type": "string", "format": "binary"}},
    "text/plain": {"schema": {"type": "string"}},
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route that exports."""

    @app.post(
        "/export",
        response_class=Response,
        responses={
            200: {"description": "The files, or where they are", "content": CONTENT},
            **errors(404, 408, 413, 415, 422, 503),
        },
        openapi_extra={**parameters(EntryParameters), **body({JSON: inlined(ExportBody), FORM: FORM_SCHEMA})},
    )
    async def export(request: Request) -> Response:
        """The files of images as a ZIP, or one path per line; other machines get keys in place of paths."""
        searcher = service.searcher(read_parameters(request, EntryParameters).index)
        asked = await read_export(request)
        entries, unknown = await service.run_in_thread(known_images, searcher.store, asked.ids)
        if asked.form == "list":
            return Response(
                listing(entries, is_local(request.scope)), headers=_headers("pictures.txt"), media_type=TEXT
            )
        files, missing = await service.run_in_thread(find_files, searcher, entries)
        if not files:
            raise NotFoundError("none of these images has a file any more; nothing was exported")
        missing += [f"entry {id}: no longer in the index" for id in unknown]
        return StreamingResponse(zip_stream(files, missing), headers=_headers("pictures.zip"), media_type=ZIP)


async def read_export(request: Request) -> ExportBody:
    """What to export, as JSON, or as JSON in a form: the answer to a form is stored by the browser while it arrives."""
    too_large = f"the body is larger than {BODY_BYTES >> 10} kB; export at most {MAX_CHOSEN:,} images at a time"
    if declared_type(request) != FORM:
        return parse_json(await read_json(request, BODY_BYTES, too_large), ExportBody)
    fields = dict(parse_qsl((await read_body(request, BODY_BYTES, too_large)).decode("latin-1")))
    if "body" not in fields:
        raise RequestError(422, "body is missing; send what to export as JSON in the field body")
    return parse_json(fields["body"].encode(), ExportBody)


def _headers(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}


def known_images(store: IndexStore, ids: Sequence[int]) -> tuple[list[Entry], list[int]]:
    """The images of these entries, each once, in their order, and the ids that the index does not have."""
    entries = {entry.id: entry for entry in _known(store, list(dict.fromkeys(ids)))}
    shown = dict.fromkeys(entry.image for entry in entries.values() if entry.image is not None)
    images = {**entries, **{entry.id: entry for entry in _known(store, [id for id in shown if id not in entries])}}
    if not entries:
        raise NotFoundError("none of these entries is in this index; they may have been removed")
    return [images[id] for id in shown if id in images], [id for id in dict.fromkeys(ids) if id not in entries]


def _known(store: IndexStore, ids: list[int]) -> list[Entry]:
    """Those of these entries that the index has: all in one query, or in halves if some are missing."""
    if not ids:
        return []
    try:
        return store.entries(ids)
    except DataError:
        if len(ids) == 1:
            return []
    half = len(ids) // 2
    return _known(store, ids[:half]) + _known(store, ids[half:])


def find_files(searcher: Searcher, entries: Sequence[Entry]) -> tuple[list[tuple[str, Path]], list[str]]:
    """The names and places of the files of images, each file once, and a line for each image without one."""
    spec = searcher.store.spec
    files: dict[Path, str] = {}
    missing = []
    for entry in entries:
        file = file_within(spec, entry)
        if file is not None:
            files.setdefault(file, entry.path or entry.key)
        else:
            gone = "the file no longer exists" if entry.path is not None else "the image is not in a file"
            missing.append(f"{entry.key}: {gone}")
    return [(name, file) for file, name in files.items()], missing


def listing(entries: Sequence[Entry], local: bool) -> str:
    """One line per file: its path or, for other machines and images without a file, its key.

    A name with a line break is written as a JSON string, so that it stays one line.
    """
    lines = dict.fromkeys(
        str(Path(entry.path).absolute()) if local and entry.path is not None else file_key(entry.key, entry.moment)
        for entry in entries
    )
    return "".join(f"{json.dumps(line) if has_control_characters(line) else line}\n" for line in lines)
