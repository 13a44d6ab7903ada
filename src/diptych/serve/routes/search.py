"""/search and /similar: search by text, by several texts, by an uploaded photo, or by an entry of the index."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError

from diptych.serve.errors import INTERNAL, RequestError, describe_error, describe_first
from diptych.serve.forms import read_upload
from diptych.serve.openapi import BINARY, BYTES, FORM, body, errors, form, inlined, parameters
from diptych.serve.queries import SearchQuery, SearchResult, Subject
from diptych.serve.reading import parse_json, read_json, read_parameters
from diptych.serve.schemas.answers import BatchAnswer, SearchAnswer
from diptych.serve.schemas.fields import MAX_CHARACTERS, MAX_QUERIES
from diptych.serve.schemas.requests import (
    BatchBody,
    LooseBatchBody,
    PictureOptions,
    SearchBody,
    SearchOptions,
    SearchParameters,
    SimilarParameters,
)
from diptych.serve.service import Service, find_entry

CAPTIONS = 5  # per image, at most
JSON_BYTES = 2**16
BATCH_BYTES = 2**20
ANSWER: dict[int | str, dict[str, Any]] = {200: {"model": SearchAnswer, "description": "The hits, best first"}}
BATCH: dict[int | str, dict[str, Any]] = {200: {"model": BatchAnswer, "description": "One answer or error per search"}}

_log = logging.getLogger(__name__)


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that search."""
    _add_search(app, service)
    _add_batch(app, service)
    _add_similar(app, service)


def _add_search(app: FastAPI, service: Service) -> None:
    @app.get("/search", responses={**ANSWER, **errors(404, 422, 503)}, openapi_extra=parameters(SearchParameters))
    async def search(request: Request) -> Response:
        """Search by text."""
        started = time.perf_counter()
        options = read_parameters(request, SearchParameters)
        return await respond(service, options, options.text, started)

    @app.post(
        "/search",
        responses={**ANSWER, **errors(404, 408, 413, 415, 422, 503)},
        openapi_extra=body({"application/json": SearchBody.model_json_schema()}),
    )
    async def search_in_body(request: Request) -> Response:
        """Search by text, with the query as JSON."""
        started = time.perf_counter()
        options = await read_search_body(request)
        return await respond(service, options, options.text, started)


def _add_batch(app: FastAPI, service: Service) -> None:
    @app.post(
        "/search/batch",
        responses={**BATCH, **errors(408, 413, 415, 422)},
        openapi_extra=body({"application/json": inlined(BatchBody)}),
    )
    async def search_batch(request: Request) -> Response:
        """Search by several texts at once; a search that fails has its error in place of its answer."""
        started = time.perf_counter()
        too_large = f"the body is larger than {BATCH_BYTES >> 20} MB; send fewer queries, at most {MAX_QUERIES}"
        batch = parse_json(await read_json(request, BATCH_BYTES, too_large), LooseBatchBody)
        asked = (answer_one(service, query, started) for query in batch.queries)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return Response(b'{"answers": [%s]}' % b", ".join(map(answer_or_error, answers)), media_type="application/json")


async def answer_one(service: Service, query: Any, started: float) -> bytes:
    """The answer to one search of a batch, as JSON."""
    try:
        options = SearchBody.model_validate(query)
    except ValidationError as reason:
        raise RequestError(422, describe_first(reason.errors(include_url=False))) from None
    return await answer(service, options, options.text, started)


def answer_or_error(outcome: bytes | BaseException) -> bytes:
    """The answer to a search of a batch, or its error with the status; one that is unexpected is logged."""
    if isinstance(outcome, bytes):
        return outcome
    if not isinstance(outcome, Exception):  # such as a cancellation, which is not about this search
        raise outcome
    status, message = describe_error(outcome)
    if message == INTERNAL:
        _log.error("a search of a batch failed", exc_info=outcome)
    return json.dumps({"error": " ".join(message.split()), "status": status}).encode("ascii")


def _add_similar(app: FastAPI, service: Service) -> None:
    @app.get("/similar", responses={**ANSWER, **errors(404, 422, 503)}, openapi_extra=parameters(SimilarParameters))
    async def similar(request: Request) -> Response:
        """Search for entries similar to one of the index."""
        started = time.perf_counter()
        options = read_parameters(request, SimilarParameters)
        await service.run_in_thread(find_entry, service.searcher(options.index), options.id)
        return await respond(service, options, options.id, started)

    @app.post(
        "/similar",
        responses={**ANSWER, **errors(404, 408, 413, 415, 422, 503)},
        openapi_extra={**parameters(PictureOptions), **body({BINARY: BYTES, FORM: form(PictureOptions, file=BYTES)})},
    )
    async def similar_to_image(request: Request) -> Response:
        """Search with an image, sent as the body or as a file of a form, optionally with words."""
        started = time.perf_counter()
        async with service.uploads.slots:
            options, image = await read_upload(request, PictureOptions)
            upload = await service.uploads.prepare(image, service.searcher(options.index).model)
        return await respond(service, options, upload, started)


async def respond(service: Service, options: SearchOptions, subject: Subject, started: float) -> Response:
    """The response to a search that was received at `started`."""
    return Response(await answer(service, options, subject, started), media_type="application/json")


async def answer(service: Service, options: SearchOptions, subject: Subject, started: float) -> bytes:
    """The answer to a search that was received at `started`, as JSON."""
    without = subject if isinstance(subject, int) else None
    query = SearchQuery(service.index_name(options.index), subject, options.request(without))
    result = await service.search(query)
    return to_json(query, result, 1000 * (time.perf_counter() - started))


def to_json(query: SearchQuery, result: SearchResult, milliseconds: float) -> bytes:
    """The body of a response, without pydantic: validating hundreds of hits takes longer than the search."""
    answer = {
        "index": query.index,
        "text": query.text or query.request.added,
        "to": query.request.to,
        **result.answer.to_json(),
        "message": result.answer.message,
        "unknown": list(result.answer.unknown_words),
        "milliseconds": round(milliseconds, 3),
    }
    for hit in answer["hits"]:
        hit["captions"] = list(result.captions.get(hit["id"], ()))[:CAPTIONS]
    return json.dumps(answer).encode("ascii")


async def read_search_body(request: Request) -> SearchBody:
    """The search in a JSON body."""
    too_large = f"the body is larger than {JSON_BYTES >> 10} kB; a text may have {MAX_CHARACTERS:,} characters"
    return parse_json(await read_json(request, JSON_BYTES, too_large), SearchBody)
