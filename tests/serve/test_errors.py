import sqlite3

import pytest

from diptych.errors import DataError, DiptychError, IndexFileError, RunError
from diptych.serve import errors


def test_unknown_addresses_and_methods(kit, client):
    kit.error_of(client.get("/nope"), 404)
    kit.error_of(client.get("/redoc"), 404)
    kit.error_of(client.get("/page/../app.py"), 404)
    kit.error_of(client.get("/page/%2e%2e/app.py"), 404)
    wrong = client.delete("/search")
    kit.error_of(wrong, 405)
    assert wrong.headers["allow"] == "GET, HEAD, POST"
    assert client.post("/health").headers["allow"] == "GET, HEAD"
    kit.error_of(client.get("/similar?id=4711"), 404)
    kit.error_of(client.get("/explain?id=4711&text=red"), 404)
    kit.error_of(client.get("/search?text=a&index=other"), 404)


@pytest.mark.parametrize(
    ("error", "status"),
    [(DataError("x"), 422), (RunError("x"), 409), (IndexFileError("x"), 503), (DiptychError("x"), 500)],
)
def test_the_status_of_an_error(error, status):
    assert errors._status(error) == status


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (errors.RequestError(415, "why"), 415, "why"),
        (DataError("why"), 422, "why"),
        (sqlite3.OperationalError("disk"), 503, "temporarily unavailable (disk)"),
        (MemoryError(), 503, "out of memory"),
        (KeyError("secret"), 500, "internal error"),
    ],
)
def test_how_an_error_is_answered(error, status, words):
    found, message = errors.describe_error(error)
    assert found == status
    assert words in message
    assert "secret" not in message


def test_a_list_of_the_wrong_length_is_described_plainly(kit, client):
    refused = kit.error_of(client.post("/export", json={"ids": []}), 422)
    assert refused == "ids: list should have at least 1 item, not 0"


def test_a_message_is_one_line():
    assert errors.error_response(400, "two\n lines").body == b'{"error": "two lines"}'
