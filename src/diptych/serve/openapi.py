"""Query parameters, request bodies and errors in the OpenAPI document, and reading parameters and bodies.

FastAPI could read the query parameters into a model, but validates each field separately, which takes as long as a
search. Instead the model validates the query as a whole, and this module adds the documentation that FastAPI would have
generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_origin

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from diptych.serve.errors import RequestError, describe_first
from diptych.serve.schemas.answers import Problem
from diptych.serve.uploads import read_body

Model = TypeVar("Model", bound=BaseModel)

BINARY = "application/octet-stream"
FORM = "multipart/form-data"
BYTES = {"type": "string", "format": "binary"}

DESCRIPTIONS = {
    400: "The request names a host that is not served",
    403: "Requested by a page from another host",
    404: "No such index or entry",
    408: "The body was not received in time",
    409: "Not supported by this index",
    413: "Too large",
    415: "Unsupported media type",
    416: "The range is not in the file",
    422: "Invalid request",
    503: "Temporarily unavailable",
}


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


async def read_json(request: Request, limit: int, too_large: str) -> bytes:
    """A body that is declared to be JSON, up to a limit of bytes.

    Requiring this type keeps out forms of other sites, which cannot send it.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "the body must be JSON; send it with Content-Type: application/json")
    return await read_body(request, limit, too_large)


def parse_json(content: bytes, model: type[Model]) -> Model:
    """A JSON body as a model."""
    try:
        return model.model_validate_json(content)
    except ValidationError as reason:
        raise RequestError(422, describe_first(reason.errors(include_url=False))) from None


def parameters(model: type[BaseModel]) -> dict[str, Any]:
    """The same parameters for FastAPI's `openapi_extra`."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    documented = [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema["properties"].items()
    ]
    return {"parameters": documented}


def body(contents: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A required request body by its media types and their schemas, for FastAPI's `openapi_extra`."""
    content = {media_type: {"schema": schema} for media_type, schema in contents.items()}
    return {"requestBody": {"required": True, "content": content}}


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """A required JSON body, for FastAPI's `openapi_extra`."""
    return body({"application/json": inlined(model)})


def form(model: type[BaseModel], **files: dict[str, Any]) -> dict[str, Any]:
    """The schema of a form with the fields of a model, and files."""
    schema = inlined(model)
    return {**schema, "properties": {**schema["properties"], **files}}


def inlined(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model without references: those in `openapi_extra` are not collected by FastAPI."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolve(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                return resolve(definitions[part["$ref"].rpartition("/")[2]])
            return {name: resolve(value) for name, value in part.items()}
        return [resolve(value) for value in part] if isinstance(part, list) else part

    resolved: dict[str, Any] = resolve(schema)
    return resolved


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route can answer with, for FastAPI's `responses`; every route can answer 400 and 403."""
    schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": DESCRIPTIONS[status], "content": schema} for status in (400, 403, *statuses)}


def document_errors(app: FastAPI) -> None:
    """Add the schema of all errors, which the routes refer to, to the OpenAPI document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            schema.setdefault("components", {}).setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
