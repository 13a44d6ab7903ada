"""What an address asks, read into a model and told to OpenAPI.

FastAPI can do both. Its reading costs as much as a search does, because it looks at every field of the model anew with
each request; so the model reads the address itself, and here stands what FastAPI would have written about it.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from diptych.serve.errors import RefusedError, first_mistake

Model = TypeVar("Model", bound=BaseModel)


def asked(request: Request, model: type[Model]) -> Model:
    """The parameters of an address as a model; of one that is said twice and is no list, the last counts."""
    said: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = model.model_fields.get(name)
        if field is not None and get_origin(field.annotation) is list:
            said.setdefault(name, []).append(value)
        else:
            said[name] = value
    try:
        return model.model_validate(said)
    except ValidationError as reason:
        raise RefusedError(422, first_mistake(reason.errors(include_url=False))) from None


def parameters(model: type[BaseModel]) -> dict[str, Any]:
    """The same for OpenAPI, as FastAPI's `openapi_extra`."""
    schema = model.model_json_schema()
    needed = schema.get("required", [])
    told = [
        {"name": name, "in": "query", "required": name in needed, "schema": field}
        for name, field in schema["properties"].items()
    ]
    return {"parameters": told}
