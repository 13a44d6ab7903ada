"""/search and /similar: search by text, by an uploaded photo, or by an entry of the index."""

from __future__ import annotations

import json
import time
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError

from diptych.serve.errors import RequestError, describe_first
from diptych.serve.openapi import body, errors, parameters, read_parameters
from diptych.serve.queries import SearchQuery, SearchResult, Upload
from diptych.serve.schemas import (
    MAX_CHARACTERS,
    SearchAnswer,
    SearchBody,
    SearchOptions,
    SearchParameters,
    SimilarParameters,
    UrlOptions,
)
from diptych.serve.service import Service, find_entry
from diptych.serve.uploads import read_body

CAPTIONS = 5  # per image, at most
JSON_BYTES = 2**16
BYTES_SCHEMA = {"type": "string", "format": "binary"}
ANSWER: dict[int | str, dict[str, Any]] = {200: {"model": SearchAnswer, "description": "The hits, best first"}}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that search."""
    _add_search(app, service)
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
        openapi_extra=body("application/json", SearchBody.model_json_schema()),
    )
    async def search_in_body(request: Request) -> Response:
        """Search by text, with the query as JSON."""
        started = time.perf_counter()
        options = await read_search_body(request)
        return await respond(service, options, options.text, started)


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
        openapi_extra={**parameters(UrlOptions), **body("application/octet-stream", BYTES_SCHEMA)},
    )
    async def similar_to_image(request: Request) -> Response:
        """Search for images similar to an image, or for texts that describe it; its bytes are the body."""
        started = time.perf_counter()
        options = read_parameters(request, UrlOptions)
        model = service.searcher(options.index).model
        return await respond(service, options, await service.uploads.read(request, model), started)


async def respond(service: Service, options: SearchOptions, subject: str | Upload | int, started: float) -> Response:
    """The response to a search that was received at `started`."""
    without = subject if isinstance(subject, int) else None
    query = SearchQuery(service.index_name(options.index), subject, options.request(without))
    result = await service.search(query)
    return Response(to_json(query, result, 1000 * (time.perf_counter() - started)), media_type="application/json")


def to_json(query: SearchQuery, result: SearchResult, milliseconds: float) -> bytes:
    """The body of a response, without pydantic: validating hundreds of hits takes longer than the search."""
    answer = {
        "index": query.index,
        "text": query.text,
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
    """The search in a JSON body; requiring this type keeps out forms of other sites, which cannot send it."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "the body must be JSON; send it with Content-Type: application/json")
    too_large = f"the body is larger than {JSON_BYTES >> 10} kB; a text may have {MAX_CHARACTERS:,} characters"
    content = await read_body(request, JSON_BYTES, too_large)
    try:
        return SearchBody.model_validate_json(content)
    except ValidationError as reason:
        raise RequestError(422, describe_first(reason.errors())) from None
