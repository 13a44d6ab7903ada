"""What a service tells Prometheus about itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64)
GONE = 499  # whoever asked went away before there was an answer

Counts = Callable[[], Mapping[tuple[str, str], int]]


class Metrics:
    """The counters of one service, in a registry of their own; `counts` are entries by index and kind."""

    def __init__(self, counts: Counts) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "diptych_requests", "Requests by route and status", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "diptych_request_seconds", "Seconds to an answer", ["route"], buckets=SECONDS, registry=self._registry
        )
        self.batches = Histogram(
            "diptych_batch_size", "Questions answered in one pass", buckets=SIZES, registry=self._registry
        )
        self.hits = Counter("diptych_cache_hits", "Queries that were encoded already", registry=self._registry)
        self.misses = Counter("diptych_cache_misses", "Queries that had to be encoded", registry=self._registry)
        self._registry.register(_Entries(counts))

    def text(self) -> bytes:
        """Everything in Prometheus' text form."""
        return generate_latest(self._registry)


class _Entries(Collector):
    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def describe(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("diptych_entries", "Entries of an index", labels=["index", "kind"])

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("diptych_entries", "Entries of an index", labels=["index", "kind"])
        for labels, count in self._counts().items():
            family.add_metric(labels, count)
        yield family


class Measured:
    """Counts and times every request; those that match no route are one, so that nobody can make up labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request, and note what becomes of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), GONE

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = 500
            raise
        finally:
            route = getattr(scope.get("route"), "path_format", "none")
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
