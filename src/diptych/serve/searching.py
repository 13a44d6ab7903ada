"""/search and /similar: in words, with a photo, or more like an entry."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError

from diptych.serve.answers import to_json
from diptych.serve.asked import asked, parameters
from diptych.serve.errors import RefusedError, first_mistake
from diptych.serve.queries import Question, Upload
from diptych.serve.schemas import (
    CHARACTERS,
    SearchAnswer,
    SearchBody,
    SearchInAddress,
    SimilarInAddress,
    Wanted,
    WantedInAddress,
    errors,
)
from diptych.serve.service import Service, entry_of
from diptych.serve.uploads import read_body

JSON_BYTES = 2**16
BYTES_SCHEMA = {"type": "string", "format": "binary"}
ANSWER: dict[int | str, dict[str, Any]] = {200: {"model": SearchAnswer, "description": "The hits, best first"}}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that search."""
    _add_search(app, service)
    _add_similar(app, service)


def _add_search(app: FastAPI, service: Service) -> None:
    @app.get("/search", responses={**ANSWER, **errors(404, 422, 503)}, openapi_extra=parameters(SearchInAddress))
    async def search(request: Request) -> Response:
        """Find what fits a text."""
        started = time.perf_counter()
        wanted = asked(request, SearchInAddress)
        return await answered(service, wanted, wanted.text, started)

    @app.post(
        "/search",
        responses={**ANSWER, **errors(404, 408, 413, 415, 422, 503)},
        openapi_extra=body("application/json", SearchBody.model_json_schema()),
    )
    async def search_in_body(request: Request) -> Response:
        """Find what fits a text, asked in JSON."""
        started = time.perf_counter()
        wanted = await read_question(request)
        return await answered(service, wanted, wanted.text, started)


def _add_similar(app: FastAPI, service: Service) -> None:
    @app.get("/similar", responses={**ANSWER, **errors(404, 422, 503)}, openapi_extra=parameters(SimilarInAddress))
    async def similar(request: Request) -> Response:
        """Find what is like an entry of the index."""
        started = time.perf_counter()
        wanted = asked(request, SimilarInAddress)
        searcher = service.searchers[service.named(wanted.index)]
        await service.in_thread(entry_of, searcher, wanted.id)
        return await answered(service, wanted, wanted.id, started)

    @app.post(
        "/similar",
        responses={**ANSWER, **errors(404, 408, 413, 415, 422, 503)},
        openapi_extra={**parameters(WantedInAddress), **body("application/octet-stream", BYTES_SCHEMA)},
    )
    async def similar_to_image(request: Request) -> Response:
        """Find what is like an image, or the texts that fit it; its bytes are the body."""
        started = time.perf_counter()
        wanted = asked(request, WantedInAddress)
        encoder = service.searchers[service.named(wanted.index)].encoder
        return await answered(service, wanted, await service.uploads.read(request, encoder), started)


async def answered(service: Service, wanted: Wanted, about: str | Upload | int, started: float) -> Response:
    """The answer to a question that began to be read at `started`."""
    without = about if isinstance(about, int) else None
    question = Question(service.named(wanted.index), about, wanted.ask(without))
    found = await service.ask(question)
    told = to_json(question, found, 1000 * (time.perf_counter() - started))
    return Response(told, media_type="application/json")


async def read_question(request: Request) -> SearchBody:
    """The question in a body of JSON, which a form of another site cannot send."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "the body must be JSON; send it with Content-Type: application/json")
    too_large = f"the question is larger than {JSON_BYTES >> 10} kB; its text may have {CHARACTERS:,} characters"
    sent = await read_body(request, JSON_BYTES, too_large)
    try:
        return SearchBody.model_validate_json(sent)
    except ValidationError as reason:
        raise RefusedError(422, first_mistake(reason.errors())) from None


def body(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A body that must be there, for OpenAPI."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}
