"""Query parameters, request bodies and errors in the OpenAPI document.

The routes read them with `reading`, not with FastAPI; this module adds the documentation that FastAPI would have
generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from diptych.serve.schemas.answers import Problem

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
