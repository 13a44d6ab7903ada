"""/indexes, /health and /metrics: what is served, its problems, and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST

from diptych import __version__
from diptych.index.search import Searcher
from diptych.serve.openapi import errors
from diptych.serve.schemas.answers import Health, Indexes
from diptych.serve.service import UNAVAILABLE, Service

MAX_FOLDERS = 200


class PrometheusText(Response):
    """Metrics in the text format of Prometheus."""

    media_type = CONTENT_TYPE_LATEST


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes about the service itself."""

    @app.get("/indexes", response_model=Indexes, responses=errors(503))
    async def indexes() -> Any:
        """The served indexes, the default first, and what each supports."""
        named = list(service.searchers.items())
        return {"indexes": [await service.run_in_thread(describe, name, searcher) for name, searcher in named]}

    @app.get("/health", response_model=Health, responses=errors())
    async def health() -> Any:
        """Whether every index can be read and its images still exist."""
        return await service.run_in_thread(check_health, service)

    @app.get("/metrics", response_class=PrometheusText, responses=errors())
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return PrometheusText(await service.run_in_thread(service.metrics.text))


def describe(name: str, searcher: Searcher) -> dict[str, Any]:
    """What clients may know about an index; of model and source only the last part of their paths."""
    store = searcher.store
    with store.reading():
        counts, spec = store.counts(), store.spec
        return {
            "name": name,
            "images": counts["image"],
            "texts": counts["text"],
            "model": _last_part(spec.model),
            "source_name": ", ".join(name for name, _ in spec.folders) or _last_part(spec.source),
            "localizes": searcher.model.localises,
            "explains": True,
            "splits": store.splits(),
            "folders": store.folders()[:MAX_FOLDERS],
            "columns": store.columns(),
        }


def check_health(service: Service) -> dict[str, Any]:
    """The state of every index; one that cannot be read does not hide the others."""
    problems: list[str] = []
    indexes: dict[str, dict[str, Any]] = {}
    for name, searcher in service.searchers.items():
        indexes[name] = {}
        try:
            counts = searcher.store.counts()
            skipped = len(searcher.store.problems())
            indexes[name] = {"images": counts["image"], "texts": counts["text"], "skipped": skipped}
            problems += [f"{name}: {problem}" for problem in _problems(searcher)]
        except UNAVAILABLE as error:
            problems.append(f"{name}: {error}")
    status = "degraded" if problems else "ok"
    return {"status": status, "problems": problems, "version": __version__, "indexes": indexes}


def _problems(searcher: Searcher) -> list[str]:
    problems = []
    if not searcher.store.exists():
        problems.append("the index file was deleted; it is served as it was until the service ends")
    if not searcher.model_matches:
        problems.append("the index has been rebuilt with another model; restart the service")
    for root in searcher.store.spec.roots:
        if not Path(root).is_dir():
            folder = "the folder of its images" if searcher.store.spec.root else f"the folder {_last_part(root)}"
            problems.append(f"{folder} does not exist; only thumbnails can be shown")
    return problems


def _last_part(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2] or address
