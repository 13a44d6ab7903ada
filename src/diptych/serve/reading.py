"""Reads query parameters and JSON bodies into models.

FastAPI could read the query parameters into a model, but validates each field separately, which takes as long as a
search. Here the model validates them as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from diptych.serve.errors import RequestError, describe_first
from diptych.serve.uploads import read_body

Model = TypeVar("Model", bound=BaseModel)


def read_parameters(request: Request, model: type[Model]) -> Model:
    """The query parameters of a request as a model."""
    return read_options(request.query_params.multi_items(), model)


def read_options(named: Iterable[tuple[str, str]], model: type[Model]) -> Model:
    """Named strings as a model; if one that is not a list is repeated, the last one counts."""
    values: dict[str, Any] = {}
    for name, value in named:
        field = model.model_fields.get(name)
        if field is not None and get_origin(field.annotation) is list:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return model.model_validate(values)
    except ValidationError as reason:
        raise RequestError(422, describe_first(reason.errors(include_url=False))) from None


def declared_type(request: Request) -> str:
    """The media type that the body of a request is declared to have."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request, limit: int, too_large: str) -> bytes:
    """A body that is declared to be JSON, up to a limit of bytes.

    Requiring this type keeps out forms of other sites, which cannot send it.
    """
    if declared_type(request) != "application/json":
        raise RequestError(415, "the body must be JSON; send it with Content-Type: application/json")
    return await read_body(request, limit, too_large)


def parse_json(content: bytes, model: type[Model]) -> Model:
    """A JSON body as a model."""
    try:
        return model.model_validate_json(content)
    except ValidationError as reason:
        raise RequestError(422, describe_first(reason.errors(include_url=False))) from None
