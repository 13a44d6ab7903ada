"""/encode: the vectors of texts and images, as JSON or as the bytes of a float32 array."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response

from diptych.models.embeddings import to_array
from diptych.models.engines.engine import Encodings
from diptych.serve.errors import RequestError, describe_error
from diptych.serve.forms import has_form, read_form
from diptych.serve.openapi import BINARY, BYTES, FORM, body, errors, form, inlined
from diptych.serve.queries import EncodingQuery, Upload, check_model
from diptych.serve.reading import parse_json, read_json, read_options
from diptych.serve.schemas.answers import Encoded
from diptych.serve.schemas.fields import MAX_IMAGES
from diptych.serve.schemas.requests import EncodeBody
from diptych.serve.service import Service
from diptych.serve.uploads import not_empty, not_too_large

BODY_BYTES = 32 * 2**20  # of the JSON; base64 makes images a third larger
SHAPE_HEADER = "X-Shape"
IMAGE_FIELDS = ("images", "image", "file")
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Encoded,
        "description": f"The vectors; {BINARY} has the rows of the texts, then of the images, in little-endian float32",
        "content": {BINARY: {"schema": BYTES}},
        "headers": {SHAPE_HEADER: {"description": f"The shape of {BINARY}", "schema": {"type": "string"}}},
    }
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route that encodes."""

    @app.post(
        "/encode",
        responses={**ANSWER, **errors(404, 408, 413, 415, 422, 503)},
        openapi_extra=body(
            {"application/json": inlined(EncodeBody), FORM: form(EncodeBody, images={"type": "array", "items": BYTES})}
        ),
    )
    async def encode(request: Request) -> Response:
        """Encode texts and images with the model of an index."""
        async with service.uploads.slots:
            asked, images = await read_items(service, request)
            index = service.index_name(asked.index)
            uploads = await prepare_images(service, index, images)
            del images
        rows = await encode_all(service, index, asked.texts, uploads)
        if BINARY in request.headers.get("accept", ""):
            return as_bytes(rows)
        return as_json(index, rows[: len(asked.texts)], rows[len(asked.texts) :])


async def read_items(service: Service, request: Request) -> tuple[EncodeBody, Sequence[str | bytes]]:
    """What to encode, and the images in base64, from JSON, or as bytes, from a form."""
    too_large = f"the body is larger than {BODY_BYTES >> 20} MB; send fewer or smaller images"
    if not has_form(request):
        content = await read_json(request, BODY_BYTES, too_large)
        asked = await service.run_in_thread(parse_json, content, EncodeBody)
        return asked, asked.images
    sent = await read_form(request, IMAGE_FIELDS, BODY_BYTES, too_large)
    if len(sent.files) > MAX_IMAGES:
        raise RequestError(422, f"the form has {len(sent.files)} images; send at most {MAX_IMAGES}")
    return read_options(sent.fields, EncodeBody), [content for _, content in sent.files]


async def prepare_images(service: Service, index: str, images: Sequence[str | bytes]) -> list[Upload]:
    """The images of a request, prepared for the model; a RequestError names the one that cannot be used."""
    uploads = []
    for number, image in enumerate(images):
        try:
            content = not_too_large(not_empty(decode_base64(image) if isinstance(image, str) else image))
            uploads.append(await service.uploads.prepare(content, service.searchers[index].model))
        except RequestError as reason:
            raise RequestError(reason.status, f"images.{number}: {reason}") from None
    return uploads


def decode_base64(image: str) -> bytes:
    """The bytes of an image file."""
    try:
        return base64.b64decode(image, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(422, "not base64; send the bytes of an image file in base64") from None


async def encode_all(
    service: Service, index: str, texts: Sequence[str], uploads: Sequence[Upload]
) -> Sequence[Encodings]:
    """One row per text, then one per image; the error of the first that fails names it."""
    if not texts and not uploads:
        raise RequestError(422, f"nothing to encode; send texts, or up to {MAX_IMAGES} images")
    check_model(service.searchers[index])
    names = [f"texts.{number}" for number in range(len(texts))]
    names += [f"images.{number}" for number in range(len(uploads))]
    subjects: list[str | Upload] = [*texts, *uploads]
    asked = (service.encode(EncodingQuery(index, subject)) for subject in subjects)
    rows: list[Encodings] = []
    for name, row in zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(row, Encodings):
            rows.append(row)
        elif isinstance(row, Exception) and describe_error(row)[0] != 500:
            status, message = describe_error(row)
            raise RequestError(status, f"{name}: {message}")
        else:
            raise row
    return rows


def as_bytes(rows: Sequence[Encodings]) -> Response:
    """All rows as one array: (items, size), or (items, places, size), padded with zeros, if they are sets."""
    array = to_array(Encodings.concatenate(rows)).astype("<f4", copy=False)
    headers = {SHAPE_HEADER: ",".join(map(str, array.shape))}
    return Response(np.ascontiguousarray(array).tobytes(), headers=headers, media_type=BINARY)


def as_json(index: str, texts: Sequence[Encodings], images: Sequence[Encodings]) -> Response:
    """The rows as lists of numbers."""
    found = {"index": index, "texts": _lists(texts), "images": _lists(images)}
    return Response(json.dumps(found), media_type="application/json")


def _lists(rows: Sequence[Encodings]) -> Any:
    return to_array(Encodings.concatenate(rows)).tolist() if rows else []
