"""/examples: examples of queries, made from an index."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request

from diptych.serve.openapi import errors, parameters
from diptych.serve.reading import read_parameters
from diptych.serve.schemas.answers import ExamplesAnswer
from diptych.serve.schemas.requests import ExamplesParameters
from diptych.serve.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route."""

    @app.get(
        "/examples",
        response_model=ExamplesAnswer,
        responses=errors(404, 422, 503),
        openapi_extra=parameters(ExamplesParameters),
    )
    async def examples(request: Request) -> Any:
        """Queries that several photos of the index fit."""
        options = read_parameters(request, ExamplesParameters)
        name = service.index_name(options.index)
        return {"index": name, "examples": await service.run_in_thread(service.searchers[name].examples)}
