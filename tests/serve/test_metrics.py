import asyncio

import pytest

from diptych.serve.metrics import MeasureRequests, Metrics


def test_requests_batches_and_entries_are_counted(kit, two):
    with kit.served(two) as client:
        for text in ("red", "blue", "red"):
            client.get(f"/search?text={text}")
        client.get("/search?text=")
        client.get("/made/up/4711")
        reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    lines = dict(line.rsplit(" ", 1) for line in reply.text.splitlines() if not line.startswith("#"))
    assert lines['diptych_requests_total{route="/search",status="200"}'] == "3.0"
    assert lines['diptych_requests_total{route="/search",status="422"}'] == "1.0"
    assert lines['diptych_requests_total{route="none",status="404"}'] == "1.0"
    assert lines['diptych_request_seconds_count{route="/search"}'] == "4.0"
    assert (lines["diptych_cache_hits_total"], lines["diptych_cache_misses_total"]) == ("1.0", "2.0")
    assert lines["diptych_batch_size_count"] == "3.0"
    assert lines['diptych_entries{index="second",kind="image"}'] == "2.0"


def test_a_client_that_disconnects_is_not_an_error(kit, two):
    async def receive():
        return {"type": "http.disconnect"}

    async def send(_):
        raise AssertionError("the client has disconnected")

    with kit.served(two) as client:
        scope = dict(kit.SCOPE, method="POST", path="/similar", raw_path=b"/similar")
        asyncio.run(client.app(scope, receive, send))
        reply = client.get("/metrics").text
    assert 'diptych_requests_total{route="/similar",status="499"} 1.0' in reply
    assert 'status="500"' not in reply


def test_an_exception_is_counted_as_500():
    async def broken(scope, receive, send):
        raise ValueError("a fault")

    metrics = Metrics(dict)
    with pytest.raises(ValueError, match="a fault"):
        asyncio.run(MeasureRequests(broken, metrics)({"type": "http"}, None, None))
    assert b'status="500"} 1.0' in metrics.text()
