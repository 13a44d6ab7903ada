"""Calls are repeated while a server does not answer, and every error is one line with the remedy."""

import pytest

from diptych.errors import DiptychError, IndexFileError
from diptych.index.milvus import client as module
from diptych.index.milvus.address import MilvusAddress
from diptych.index.milvus.client import Client, CollectionGoneError

pytest.importorskip("pymilvus")


class Flaky:
    """A connection whose first calls fail."""

    def __init__(self, failures):
        self.failures, self.asked = list(failures), []

    def query(self, *args, **options):
        self.asked.append(options["timeout"])
        if self.failures:
            raise self.failures.pop(0)
        return [{"count(*)": 7}]

    def close(self):
        pass


class ServerError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def client_of(monkeypatch, *failures):
    client, connection = Client(MilvusAddress.parse("milvus://host:1/photos")), Flaky(failures)
    monkeypatch.setattr(client, "_connect", lambda: connection)
    return client, connection


def test_a_call_is_repeated_until_the_server_answers(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.001)
    client, connection = client_of(monkeypatch, ServerError(2, "Fail connecting"), ServerError(1, "UNAVAILABLE: x"))
    assert client.count("photos", "", "image", level="Strong") == 7
    assert len(connection.asked) == 3


@pytest.mark.parametrize(
    ("failure", "told", "kind"),
    [
        (ServerError(2, "Fail connecting to server"), "no Milvus answers at host:1 (", IndexFileError),
        (ServerError(100, "can't find collection"), "no such index in this Milvus; make one: ", CollectionGoneError),
        (ServerError(65535, "auth check failure"), "set MILVUS_TOKEN=user:password", IndexFileError),
        (ServerError(1100, "cannot parse\nexpression"), "an error (ServerError: cannot parse expr", IndexFileError),
    ],
)  # fmt: skip
def test_errors_are_one_line(monkeypatch, failure, told, kind):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    client, _ = client_of(monkeypatch, failure)
    with pytest.raises(kind) as raised:
        client.count("photos", "", "image", level="Strong")
    assert str(raised.value).startswith("milvus://host:1/photos: ")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_error_that_stays_is_not_repeated(monkeypatch):
    client, connection = client_of(monkeypatch, ServerError(1100, "cannot parse expression"))
    with pytest.raises(IndexFileError):
        client.count("photos", "", "image", level="Strong")
    assert len(connection.asked) == 1


def test_calls_after_one_that_was_repeated_in_vain_fail_at_once_for_a_while(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    client, connection = client_of(monkeypatch, ServerError(2, "Fail connecting"))
    for _ in range(2):
        with pytest.raises(IndexFileError, match="no Milvus answers at host:1"):
            client.count("photos", "", "image", level="Strong")
    assert len(connection.asked) == 1
    monkeypatch.setattr(module, "REST", 0.0)
    assert client.count("photos", "", "image", level="Strong") == 7


def test_without_pymilvus_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pymilvus", None)
    with pytest.raises(DiptychError, match=r"pymilvus is not installed; run: pip install 'diptych\[milvus\]'"):
        Client(MilvusAddress.parse("milvus://host/photos"))
