"""/image, /explain and /localize: the picture of an entry, and what in a text and in the picture made the match.

Clients name an entry by its id, never by a path. The file of an entry must be inside the indexed folder, and only a
re-encoded picture is sent, never the file.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from PIL import Image

from diptych.data.images import decode, decode_bytes
from diptych.data.video import frame_at
from diptych.errors import DataError, ImageError
from diptych.index.entries import Entry
from diptych.index.search import Searcher
from diptych.index.spec import IndexSpec
from diptych.models.embeddings import to_array
from diptych.serve.errors import RequestError
from diptych.serve.openapi import errors, parameters
from diptych.serve.queries import stored_encoding
from diptych.serve.reading import read_parameters
from diptych.serve.schemas.answers import Explained, Localized
from diptych.serve.schemas.fields import MAX_ID
from diptych.serve.schemas.requests import EntryAndText, PictureParameters
from diptych.serve.service import Service, find_entry
from diptych.text.noun_phrases import noun_phrases

MAX_SIDE = 1600  # pixels of a large picture
QUALITY = 88
MAX_PHRASES = 8  # of a text
PLACES = 1  # per phrase


class Jpeg(Response):
    """A picture."""

    media_type = "image/jpeg"


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes about one entry."""
    _add_image(app, service)

    @app.get(
        "/explain", response_model=Explained, responses=errors(404, 422, 503), openapi_extra=parameters(EntryAndText)
    )
    async def explain(request: Request) -> Any:
        """The importance of each word of a text for its score with an image."""
        query = read_parameters(request, EntryAndText)
        return await service.run_in_thread(explain_words, service.searcher(query.index), query)

    @app.get(
        "/localize",
        response_model=Localized,
        responses=errors(404, 409, 422, 503),
        openapi_extra=parameters(EntryAndText),
    )
    async def localize(request: Request) -> Any:
        """The places of the phrases of a text in an image."""
        query = read_parameters(request, EntryAndText)
        return await service.run_in_thread(localise_phrases, service.searcher(query.index), query)


def _add_image(app: FastAPI, service: Service) -> None:
    @app.get(
        "/image/{id:path}",
        response_class=Jpeg,
        responses={304: {"description": "Not modified"}, **errors(404, 422, 503)},
        openapi_extra=parameters(PictureParameters),
    )
    async def image(request: Request, id: str) -> Response:
        """The picture of an entry as JPEG; the picture of a text is that of its image."""
        options = read_parameters(request, PictureParameters)
        searcher = service.searcher(options.index)
        picture = large_picture if options.size == "large" else thumbnail
        content = await service.run_in_thread(picture, searcher, parse_id(id))
        return jpeg_response(content, request.headers.get("if-none-match", ""))


def jpeg_response(picture: bytes, if_none_match: str) -> Jpeg:
    """A picture with an ETag, or 304 if the client has it; it is revalidated each time, because ids may be reused."""
    tag = f'"{hashlib.sha256(picture).hexdigest()[:32]}"'
    headers = {"Cache-Control": "private, no-cache", "ETag": tag}
    if tag in (known.strip().removeprefix("W/") for known in if_none_match.split(",")):
        return Jpeg(status_code=304, headers=headers)
    return Jpeg(picture, headers=headers)


def parse_id(text: str) -> int:
    """The id of an entry in a path; anything else is refused before a file is touched."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and 0 < int(text) <= MAX_ID):
        raise RequestError(404, "no such entry; an image is named by its id, such as /image/1")
    return int(text)


def thumbnail(searcher: Searcher, id: int) -> bytes:
    """The thumbnail that the index stores."""
    find_entry(searcher, id)
    jpeg = searcher.store.thumbnail(id)
    if jpeg is None:
        raise RequestError(404, f"entry {id} has no picture")
    return jpeg


def large_picture(searcher: Searcher, id: int) -> bytes:
    """The picture in the entry's file, re-encoded; an entry without a file has only its thumbnail."""
    entry = image_entry(searcher, id)
    if entry.path is None:
        return thumbnail(searcher, entry.id)
    return encode_jpeg(read_photo(searcher, entry))


def image_entry(searcher: Searcher, id: int) -> Entry:
    """The image of an entry: itself, or the image that a text belongs to."""
    entry = find_entry(searcher, id)
    if entry.image is None:
        raise RequestError(404, f"entry {id} has no picture")
    return entry if entry.image == entry.id else find_entry(searcher, entry.image)


def read_photo(searcher: Searcher, entry: Entry) -> Image.Image:
    """The photo in an entry's file, or the frame of its video, decoded at no more than about twice `MAX_SIDE`."""
    file = file_within(searcher.store.spec, entry)
    if file is None:
        raise RequestError(404, f"{entry.key}: the file no longer exists; only its thumbnail is left")
    try:
        if entry.moment is not None:
            return frame_at(file, entry.moment, MAX_SIDE // 2)
        return decode(file, MAX_SIDE // 2)  # a JPEG is reduced by powers of two, to no less than this
    except ImageError:
        raise RequestError(404, f"{entry.key}: the file can no longer be read as an image") from None


def file_within(spec: IndexSpec, entry: Entry) -> Path | None:
    """The real path of an entry's file, if it is a regular file that may belong to the index after resolving links."""
    if not spec.roots or entry.path is None:
        return None
    try:
        file = Path(entry.path).resolve(strict=True)
        return file if spec.contains(file) and file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # missing, not a valid name, or a cycle of links
        return None


def encode_jpeg(photo: Image.Image) -> bytes:
    """A photo as JPEG of at most `MAX_SIDE`, without the metadata of its file."""
    small = photo.copy()
    small.info = {}
    small.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def explain_words(searcher: Searcher, query: EntryAndText) -> dict[str, Any]:
    """The importance of each word, from the stored encoding of the image; its file is not needed."""
    image, _ = stored_encoding(searcher, image_entry(searcher, query.id).id)
    found = searcher.model.explain(to_array(image), query.text)
    words = [word.to_json() for word in found.words]
    return {"id": query.id, "text": query.text, "score": found.score, "words": words}


def localise_phrases(searcher: Searcher, query: EntryAndText) -> dict[str, Any]:
    """The best place of each phrase of the text, relative to the image; phrases of unknown words have none."""
    model = searcher.model
    if not model.localises:
        raise RequestError(409, "the model of this index scores whole images and cannot localise phrases")
    photo = _photo(searcher, query.id)
    phrases = list(dict.fromkeys(noun_phrases(query.text) or [query.text]))[:MAX_PHRASES]
    known = [phrase for phrase, known in zip(phrases, model.known_texts(phrases).tolist(), strict=True) if known]
    if not known:
        raise DataError(f"{query.text!r}: the model knows none of its words; try other words")
    found = dict(zip(known, model.localize(photo, known, PLACES), strict=True))
    scale = np.array([photo.width, photo.height] * 2)
    places = {
        phrase: [{"box": (np.array(place.box) / scale).tolist(), "score": place.score} for place in places]
        for phrase, places in found.items()
    }
    return {"id": query.id, "phrases": [{"phrase": phrase, "places": places.get(phrase, [])} for phrase in phrases]}


def _photo(searcher: Searcher, id: int) -> Image.Image:
    entry = image_entry(searcher, id)
    if entry.path is None:  # a drawn picture, of which the index stores all there is
        return decode_bytes(thumbnail(searcher, entry.id), entry.key)
    return read_photo(searcher, entry)
