"""What a client is told when something is wrong: one sentence, always as {"error": sentence}."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from diptych.errors import DataError, DiptychError, IndexFileError, RunError
from diptych.serve.methods import allowed

SENTENCES = {
    404: "nothing is at this address; /openapi.json lists what there is",
    405: "this address cannot be asked that way; /openapi.json lists how",
}


class RefusedError(Exception):
    """An answer that is an error: its HTTP status, and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that tells one sentence."""
    told = json.dumps({"error": " ".join(sentence.split())})
    return Response(told, status, headers, media_type="application/json")


def add_handlers(app: FastAPI) -> None:
    """Tell every error in the one form, whoever raised it."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return problem(error.status, str(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        sentence = SENTENCES.get(error.status_code, str(error.detail))
        headers = {"Allow": allowed(request)} if error.status_code == 405 else error.headers
        return problem(error.status_code, sentence, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        within = [{**mistake, "loc": mistake["loc"][1:]} for mistake in error.errors()]  # the first part is "query"
        return problem(422, first_mistake(within))

    @app.exception_handler(DiptychError)
    async def known(_: Request, error: DiptychError) -> Response:
        return problem(_status(error), str(error))

    @app.exception_handler(sqlite3.Error)
    async def database(_: Request, error: sqlite3.Error) -> Response:
        return problem(503, f"the index cannot be read now ({error}); try again, and see /health")

    @app.exception_handler(MemoryError)
    async def memory(_: Request, __: MemoryError) -> Response:
        return problem(503, "out of memory; ask for less, or try again")


def _status(error: DiptychError) -> int:
    if isinstance(error, IndexFileError):
        return 503
    if isinstance(error, RunError):
        return 409
    return 422 if isinstance(error, DataError) else 500


def first_mistake(mistakes: Sequence[Mapping[str, Any]]) -> str:
    """The first of pydantic's complaints as a sentence that names the field."""
    first = mistakes[0]
    field = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"])
    if first["type"] == "missing":
        return f"{field} is missing"
    if first["type"] == "extra_forbidden":
        return f"{field[:100]}: there is no such field"
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {message}"
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
    return f"{field[:100] or 'the body'}: {message[:1].lower()}{message[1:]}"
