"""Errors of the service: every error response is JSON with one sentence, {"error": sentence}."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from diptych.errors import DataError, DiptychError, IndexFileError, NotFoundError, RunError

MESSAGES = {
    404: "there is nothing at this address; /openapi.json lists all routes",
    405: "this address does not support that method; /openapi.json lists those it does",
}


INTERNAL = "internal error; the log of the service has the details"


class RequestError(Exception):
    """A request that is answered with an error: its HTTP status, and one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The response for an error."""
    body = json.dumps({"error": " ".join(message.split())})
    return Response(body, status, headers, media_type="application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Turn every exception into an error response."""

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        message = MESSAGES.get(error.status_code, str(error.detail))
        headers = {"Allow": allowed_methods(request)} if error.status_code == 405 else error.headers
        return error_response(error.status_code, message, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        mistakes = [{**mistake, "loc": mistake["loc"][1:]} for mistake in error.errors()]  # without the first: "query"
        return error_response(422, describe_first(mistakes))

    async def expected(_: Request, error: Exception) -> Response:
        return error_response(*describe_error(error))

    for kind in (RequestError, DiptychError, sqlite3.Error, MemoryError):
        app.add_exception_handler(kind, expected)


def describe_error(error: Exception) -> tuple[int, str]:
    """The status and the sentence that an exception is answered with; an unexpected one is a 500 without details."""
    if isinstance(error, RequestError):
        return error.status, str(error)
    if isinstance(error, DiptychError):
        return _status(error), str(error)
    if isinstance(error, sqlite3.Error):
        return 503, f"the index is temporarily unavailable ({error}); try again, and see /health"
    if isinstance(error, MemoryError):
        return 503, "out of memory; request less, or try again"
    return 500, INTERNAL


def allowed_methods(request: Request) -> str:
    """The methods of all routes at the address of a request, for the header Allow; HEAD is allowed wherever GET is."""
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def describe_first(mistakes: Sequence[Mapping[str, Any]]) -> str:
    """The first of pydantic's validation errors as a sentence that names the field."""
    first = mistakes[0]
    field = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).replace(" after validation", "")
    if first["type"] == "missing":
        return f"{field} is missing"
    if first["type"] == "extra_forbidden":
        return f"{field[:100]}: there is no such field"
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {message}"
    if first["type"] == "model_type":  # pydantic words it otherwise if the value was not parsed from JSON
        message = "input should be an object"
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        if not field:  # about several fields
            return message
    return f"{field[:100] or 'the body'}: {message[:1].lower()}{message[1:]}"


def _status(error: DiptychError) -> int:
    if isinstance(error, IndexFileError):
        return 503
    if isinstance(error, RunError):
        return 409
    if isinstance(error, NotFoundError):
        return 404
    return 422 if isinstance(error, DataError) else 500
