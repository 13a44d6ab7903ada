"""Metrics of the service for Prometheus."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
CLIENT_CLOSED = 499  # the status for a client that disconnected before the response, as in nginx

EntryCounts = Callable[[], Mapping[tuple[str, str], int]]


class Metrics:
    """The metrics of one service in their own registry; `entry_counts` returns the entries by index and kind."""

    def __init__(self, entry_counts: EntryCounts) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "diptych_requests", "Requests by route and status", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "diptych_request_seconds",
            "Seconds to a response",
            ["route"],
            buckets=SECONDS_BUCKETS,
            registry=self._registry,
        )
        self.batches = Histogram(
            "diptych_batch_size", "Queries answered in one pass", buckets=SIZE_BUCKETS, registry=self._registry
        )
        self.cache_hits = Counter("diptych_cache_hits", "Queries whose encoding was cached", registry=self._registry)
        self.cache_misses = Counter("diptych_cache_misses", "Queries that had to be encoded", registry=self._registry)
        self._entries = _EntryCounts(entry_counts)
        self._registry.register(self._entries)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus, added up if several workers serve."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        registry.register(self._entries)
        return generate_latest(registry)


class _EntryCounts(Collector):
    def __init__(self, entry_counts: EntryCounts) -> None:
        self._entry_counts = entry_counts

    def describe(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("diptych_entries", "Entries of an index", labels=["index", "kind"])

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("diptych_entries", "Entries of an index", labels=["index", "kind"])
        for labels, count in self._entry_counts().items():
            family.add_metric(labels, count)
        yield family


class MeasureRequests:
    """Middleware that counts and times requests by route; all unknown addresses share one label."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request, and record its status and duration."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), CLIENT_CLOSED

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_record)
        except Exception:
            status = 500
            raise
        finally:
            route = getattr(scope.get("route"), "path_format", "none")
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
