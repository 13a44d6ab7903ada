"""/indexes, /health and /metrics: what is served, whether all is well, and how it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST

from diptych import __version__
from diptych.index.search import Searcher
from diptych.serve.explaining import localizing
from diptych.serve.schemas import Health, Indexes, errors
from diptych.serve.service import FAILURES, Service

FOLDERS = 200  # that are named, at most


class PrometheusText(Response):
    """Figures in Prometheus' text form."""

    media_type = CONTENT_TYPE_LATEST


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that tell of the service itself."""

    @app.get("/indexes", response_model=Indexes, responses=errors(503))
    async def indexes() -> Any:
        """The indexes, the default first, and what can be asked of each."""
        named = list(service.searchers.items())
        return {"indexes": [await service.in_thread(about, name, searcher) for name, searcher in named]}

    @app.get("/health", response_model=Health, responses=errors())
    async def health() -> Any:
        """Whether every index can be read and its images are where they were."""
        return await service.in_thread(condition, service)

    @app.get("/metrics", response_class=PrometheusText, responses=errors())
    async def metrics() -> Response:
        """Counters and times for Prometheus."""
        return PrometheusText(await service.in_thread(service.metrics.text))


def about(name: str, searcher: Searcher) -> dict[str, Any]:
    """What there is to know about an index; addresses are told by their last part, not where they lie."""
    store = searcher.store
    with store.reading():
        counts, spec = store.counts(), store.spec
        return {
            "name": name,
            "images": counts["image"],
            "texts": counts["text"],
            "model": _last(spec.model),
            "source_name": _last(spec.source),
            "localizes": localizing(searcher.encoder) is not None,
            "explains": True,
            "splits": store.splits(),
            "folders": store.folders()[:FOLDERS],
            "columns": store.columns(),
        }


def condition(service: Service) -> dict[str, Any]:
    """What works and what does not; an index that cannot be read does not hide the others."""
    problems: list[str] = []
    indexes: dict[str, dict[str, Any]] = {}
    for name, searcher in service.searchers.items():
        indexes[name] = {}
        try:
            counts = searcher.store.counts()
            skipped = len(searcher.store.problems())
            indexes[name] = {"images": counts["image"], "texts": counts["text"], "skipped": skipped}
            problems += [f"{name}: {problem}" for problem in _problems(searcher)]
        except FAILURES as error:
            problems.append(f"{name}: {error}")
    status = "degraded" if problems else "ok"
    return {"status": status, "problems": problems, "version": __version__, "indexes": indexes}


def _problems(searcher: Searcher) -> list[str]:
    problems = []
    if not searcher.store.path.exists():
        problems.append("the file of the index was removed; it is served as it was, until the service ends")
    spec = searcher.store.spec
    if spec.identity != searcher.encoder.identity:
        problems.append("the index was made anew by another model; start the service again")
    if spec.root is not None and not Path(spec.root).is_dir():
        problems.append("the folder of its images is not there; only thumbnails can be shown")
    return problems


def _last(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2] or address
