"""Parameters and JSON bodies become models, or an error that names the field."""

import asyncio

import pytest
from starlette.requests import Request

from diptych.serve.errors import RequestError
from diptych.serve.reading import parse_json, read_json, read_options
from diptych.serve.schemas.requests import AlbumBody, SearchParameters


def request_of(content_type, body=b"{}"):
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", content_type)], "query_string": b""}
    return Request(scope, receive)


def test_the_last_of_repeated_values_counts_and_lists_keep_all():
    pairs = [("text", "a"), ("text", "b"), ("where", "x=1"), ("where", "y=2"), ("more", "1,2"), ("more", "3")]
    found = read_options(pairs, SearchParameters)
    assert (found.text, found.column_filters(), found.more) == ("b", (("x", "1"), ("y", "2")), [1, 2, 3])


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [([("text", " ")], "text: "), ([("text", "a"), ("k", "0")], "k: "), ([("txet", "a")], "txet: there is no such")],
)
def test_a_mistake_is_named(pairs, reason):
    with pytest.raises(RequestError, match=reason) as refused:
        read_options(pairs, SearchParameters)
    assert refused.value.status == 422


def test_a_body_must_be_declared_to_be_json_and_must_fit():
    declared = b"application/json; charset=utf-8"
    assert asyncio.run(read_json(request_of(declared, b'{"a": 1}'), 9, "too large")) == b'{"a": 1}'
    for content_type in (b"text/plain", b"multipart/form-data", b"application/x-www-form-urlencoded", b""):
        with pytest.raises(RequestError, match="must be JSON") as refused:
            asyncio.run(read_json(request_of(content_type), 9, "too large"))
        assert refused.value.status == 415
    with pytest.raises(RequestError, match="too large") as refused:
        asyncio.run(read_json(request_of(declared, b"0123456789"), 9, "too large"))
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("content", "reason"), [(b"{", "not JSON"), (b"[]", "an object"), (b'{"name": 1}', "name: "), (b"{}", "is missing")]
)
def test_a_body_that_is_not_of_the_model_is_refused(content, reason):
    assert parse_json(b'{"name": "a"}', AlbumBody).name == "a"
    with pytest.raises(RequestError, match=reason) as refused:
        parse_json(content, AlbumBody)
    assert refused.value.status == 422
