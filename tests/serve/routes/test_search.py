"""/search and /similar over a real index."""

import asyncio
import json
from typing import ClassVar

import httpx2
import pytest

from diptych.index.entries import SearchRequest
from diptych.serve.app import create_app
from diptych.serve.schemas.answers import BatchAnswer


def test_http_and_python_give_the_same_answer(kit, client):
    answer = client.get("/search", params={"text": "something green", "k": 2})
    expected = client.searcher.search_texts(["something green"], SearchRequest(k=2))[0]
    assert kit.keys(answer) == [hit.entry.key for hit in expected.hits]
    reply = answer.json()
    assert reply["hits"][0]["key"] == "green.jpg"
    assert reply["hits"][0]["score"] == pytest.approx(expected.hits[0].score, abs=1e-6)
    assert reply["hits"][0]["captions"] == ["a green thing"]
    assert (reply["index"], reply["text"], reply["to"], reply["searched"]) == ("photos", "something green", "image", 3)
    assert client.post("/search", json={"text": "something green", "k": 2}).json()["hits"] == reply["hits"]


def test_texts_are_found_and_filters_apply(kit, client):
    assert kit.keys(client.get("/search?text=a blue thing&to=text&k=1")) == ["below/blue.jpg#0"]
    assert kit.keys(client.get("/search?text=green&folder=below")) == ["below/blue.jpg"]
    assert kit.keys(client.post("/search", json={"text": "green", "folder": "below"})) == ["below/blue.jpg"]
    nothing = client.get("/search?text=green&until=1990-01-01")
    assert kit.keys(nothing) == []
    assert nothing.json()["message"] == "No image passes the filters; widen them."
    assert len(kit.keys(client.get("/search?text=green&folder=&since=&until=&split="))) == 3  # a form with empty fields


def test_a_search_for_similar_entries_excludes_the_entry_itself(kit, client):
    ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=red").json()["hits"]}
    assert set(kit.keys(client.get("/similar", params={"id": ids["red.jpg"]}))) == {"green.jpg", "below/blue.jpg"}
    assert kit.keys(client.get("/similar", params={"id": ids["red.jpg"], "to": "text", "k": 1})) == ["red.jpg#0"]


def test_words_are_added_to_an_entry_and_to_an_uploaded_image(kit, client):
    ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=thing").json()["hits"]}
    plain, added = (
        client.get("/similar", params={"id": ids["red.jpg"], "k": 1, **more}).json()
        for more in ({}, {"text": "blue bleu"})
    )
    assert (plain["text"], added["text"]) == (None, "blue bleu")
    assert added["hits"][0]["score"] != plain["hits"][0]["score"]
    photo = kit.picture("red")
    for text, best in (("blue", "below/blue.jpg"), ("green", "green.jpg")):
        hits = client.post("/similar", params={"text": text}, content=photo).json()["hits"]
        assert best in [hit["key"] for hit in hits][:2]
    assert client.post("/similar?text=%20", content=photo).status_code == 422
    assert client.get("/similar?id=1&text=").status_code == 422


def test_an_uploaded_image_finds_similar_images_and_captions(kit, client):
    assert kit.keys(client.post("/similar?k=1", content=kit.picture("blue"))) == ["below/blue.jpg"]
    answer = client.post("/similar?k=1&to=text", content=kit.picture("lime", form="JPEG"))
    assert kit.keys(answer) == ["green.jpg#0"]
    assert answer.json()["text"] is None


def test_an_upload_is_encoded_once_and_like_the_indexed_file(kit, tmp_path):
    class Noting(kit.FakeModel):
        seen: ClassVar = []

        def preprocess(self, photo):
            self.seen.append(photo.size)
            return super().preprocess(photo)

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/red.jpg").write_bytes(kit.picture("red", (2000, 1500), "JPEG"))
    searcher = kit.searcher_of(tmp_path / "photos", tmp_path / "index", Noting())
    indexed = Noting.seen[-1]
    assert indexed < (2000, 1500)
    app = create_app({"photos": searcher})
    searcher.model.passes.clear()
    Noting.seen.clear()
    sent = (tmp_path / "photos/red.jpg").read_bytes()

    async def ask():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            addresses = ["/similar", "/similar?to=text", "/similar?k=1"]
            first = await asyncio.gather(*(client.post(address, content=sent) for address in addresses))
            return [*first, await client.post("/similar?k=2", content=sent)]

    answers = asyncio.run(ask())
    assert [len(kit.keys(answer)) for answer in answers] == [1, 0, 1, 1]
    assert searcher.model.passes == [1]
    assert Noting.seen == [(64, 64), indexed]  # the first is a sample: which size does the model need?


def test_the_answer_names_unknown_words_as_in_python(client):
    some = client.get("/search?text=a red zebra").json()
    assert some["unknown"] == ["zebra"]
    assert some["message"].startswith("The model does not know “zebra”.")
    none = client.get("/search?text=zebra").json()
    (expected,) = client.searcher.search_texts(["zebra"], SearchRequest())
    assert (none["message"], none["unknown"]) == (expected.message, list(expected.unknown_words))
    assert none["message"].startswith("The model does not know “zebra”. No image has all of these words")
    by_meaning = client.get("/search?text=zebra&mode=meaning").json()
    assert "none of these words" in by_meaning["message"]
    assert by_meaning["words_exist"] is False
    assert some["suggestion"] is None
    assert client.get("/search?text=red zbera").json()["suggestion"] == "red zebra"
    assert (none["hits"], none["found"]) == ([], False)


BAD_QUERIES = {
    "none": ({}, "text is missing"),
    "empty": ({"text": ""}, "is empty"),
    "blank": ({"text": " \t"}, "is empty"),
    "long": ({"text": "a" * 1001}, "at most 1000 characters"),
    "huge": ({"text": "a " * 30_000}, "at most 1000 characters"),
    "no-hits": ({"text": "a", "k": 0}, "k: "),
    "all-hits": ({"text": "a", "k": 10**9}, "k: "),
    "huge-k": ({"text": "a", "k": "9" * 5000}, "k: "),
    "word-k": ({"text": "a", "k": "many"}, "k: "),
    "kind": ({"text": "a", "to": "video"}, "to: "),
    "day": ({"text": "a", "since": "yesterday"}, "not a day"),
    "no-such-day": ({"text": "a", "until": "2026-02-30"}, "not a day"),
    "split": ({"text": "a", "split": "nope"}, "no split 'nope'"),
    "field": ({"text": "a", "kk": 3}, "kk: there is no such field"),
    "field-query": ({"text": "a", "query": 3}, "query: there is no such field"),
}


@pytest.mark.parametrize(("query", "reason"), BAD_QUERIES.values(), ids=BAD_QUERIES.keys())
def test_a_bad_query_is_answered_with_one_sentence(kit, client, query, reason):
    assert reason in kit.error_of(client.get("/search", params=query), 422)
    posted = client.post("/search", json=query)
    if posted.status_code == 413:
        assert "1,000 characters" in kit.error_of(posted, 413)
    else:
        assert reason in kit.error_of(posted, 422)


def test_unknown_columns_and_bad_conditions_are_refused(kit, client):
    assert "no column 'colour'" in kit.error_of(client.get("/search?text=a&where=colour=red"), 422)
    assert "no column 'colour'" in kit.error_of(
        client.post("/search", json={"text": "a", "where": {"colour": "red"}}), 422
    )
    assert "column=value" in kit.error_of(client.get("/search?text=a&where=colour"), 422)


BODIES = {
    "not-json": (b"{text: a}", 422),
    "cut": (b'{"text": "a"', 422),
    "list": (b'["a"]', 422),
    "null": (b"null", 422),
    "nothing": (b"", 422),
    "nested": (b"[" * 50_000, 422),
    "not-utf8": b'{"text": "\xff"}',
    "half-a-character": (rb'{"text": "\ud800"}', 422),
    "numbers": (b'{"text": 3}', 422),
    "number-as-text": (b'{"text": "a", "k": "5"}', 422),
    "number-as-truth": (b'{"text": "a", "k": true}', 422),
    "huge": (b" " * 70_000, 413),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_bad_body_is_answered_with_one_sentence(kit, client, body):
    content, status = body if isinstance(body, tuple) else (body, 422)
    kit.error_of(client.post("/search", content=content, headers={"content-type": "application/json"}), status)


def test_a_form_of_another_site_cannot_search(kit, client):
    query = json.dumps({"text": "red"})
    kit.error_of(client.post("/search", content=query, headers={"content-type": "text/plain"}), 415)
    headers = {"content-type": "application/json", "origin": "http://evil.example"}
    kit.error_of(client.post("/search", content=query, headers=headers), 403)


def test_a_batch_has_the_answers_of_its_searches_in_order(kit, client):
    queries = [{"text": "green", "k": 1}, {"text": "a blue thing", "to": "text", "k": 2}, {"text": "green", "k": 1}]
    answer = client.post("/search/batch", json={"queries": queries})
    assert answer.status_code == 200, answer.text
    BatchAnswer.model_validate(answer.json())
    answers = answer.json()["answers"]
    for query, found in zip(queries, answers, strict=True):
        alone = client.post("/search", json=query).json()
        assert {**found, "milliseconds": 0} == {**alone, "milliseconds": 0}


def test_a_search_that_fails_does_not_lose_the_others_of_its_batch(kit, client, caplog):
    queries = [
        *({"text": "red"}, {"text": " "}, {"text": "red", "index": "other"}, {"text": "poison"}, {"text": "venom"}),
        *({"text": "red", "split": "nope"}, "red", {"text": "red", "k": "5"}, {"text": "blue"}),
    ]
    answers = client.post("/search/batch", json={"queries": queries}).json()["answers"]
    assert [found.get("status") for found in answers] == [None, 422, 404, 500, 500, 422, 422, 422, None]
    assert [found["hits"][0]["key"] for found in answers if "hits" in found] == ["red.jpg", "below/blue.jpg"]
    for query, found in zip(queries, answers, strict=True):
        if "error" in found:
            alone = kit.error_of(client.post("/search", json=query), found["status"])
            assert found["error"] == alone
    assert "a text that no model can read" in caplog.text  # the log has what the answer does not say
    assert "no model can read" not in str(answers)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({}, "queries is missing"),
        ({"queries": []}, "at least 1"),
        ({"queries": [{"text": "a"}] * 65}, "at most 64"),
        ({"queries": {"text": "a"}}, "queries: "),
        ({"queries": [{"text": "a"}], "k": 3}, "k: there is no such field"),
    ],
)
def test_a_bad_batch_is_answered_with_one_sentence(kit, client, sent, reason):
    assert reason in kit.error_of(client.post("/search/batch", json=sent), 422)


def test_a_batch_is_limited_and_must_be_json(kit, client):
    headers = {"content-type": "application/json"}
    large = kit.error_of(client.post("/search/batch", content=b" " * (2**20 + 1), headers=headers), 413)
    assert "at most 64" in large
    kit.error_of(client.post("/search/batch", content=b"{}", headers={"content-type": "text/plain"}), 415)


@pytest.mark.parametrize("address", ["/search?text=red+thing", "/search?text=thing&mode=both", "/similar?id=1&to=text"])
def test_next_continues_with_the_hits_that_follow(kit, client, address):
    whole = client.get(f"{address}&k=9").json()
    assert whole["next"] is None
    found, cursor = [], ""
    while cursor is not None:
        page = client.get(f"{address}&k=1&cursor={cursor}")
        assert len(kit.keys(page)) == 1
        found += kit.keys(page)
        cursor = page.json()["next"]
    assert found == [hit["key"] for hit in whole["hits"]]
    assert len(found) > 1


def test_posted_searches_have_pages_too(kit, client):
    body = {"text": "green thing", "k": 2}
    first = client.post("/search", json=body)
    second = client.post("/search", json={**body, "cursor": first.json()["next"]})
    assert len(set(kit.keys(first) + kit.keys(second))) == 3
    first = client.post("/similar?k=2", content=kit.picture("red"))
    second = client.post("/similar", params={"k": 2, "cursor": first.json()["next"]}, content=kit.picture("red"))
    assert len(set(kit.keys(first) + kit.keys(second))) == 3


def test_a_cursor_of_another_search_is_refused(kit, client):
    cursor = client.get("/search?text=red&k=1").json()["next"]
    expected = "cursor: not one that this search gave as next; leave it out to begin with the best hits"
    for other in (cursor[:-1], "x", "é", cursor):
        response = client.get("/search", params={"text": "blue", "cursor": other})
        assert kit.error_of(response, 422) == expected


def test_more_and_less_turn_a_search(kit, client):
    ids = {hit["key"]: hit["id"] for hit in client.get("/search?text=red").json()["hits"]}
    red, green, blue = (ids[key] for key in ("red.jpg", "green.jpg", "below/blue.jpg"))
    assert kit.keys(client.get(f"/search?text=red&more={green}"))[:2] == ["red.jpg", "green.jpg"]
    in_url = kit.keys(client.get(f"/search?more={green},{blue}&less={red}"))
    assert kit.keys(client.get(f"/search?more={green}&more={blue}&less={red}")) == in_url
    assert sorted(in_url) == ["below/blue.jpg", "green.jpg"]  # what is not liked is not shown
    assert kit.keys(client.post("/search", json={"more": [green, blue], "less": [red]})) == in_url
    assert client.get(f"/search?more={green}").json()["text"] is None


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("", 422, "text is missing; describe what to look for, or name images"),
        ("less=1", 422, "text is missing"),
        ("more=4711", 404, "no entry 4711"),
        ("more=x", 422, "more.0"),
        ("text=a&more=1&less=1", 422, "in both more and less"),
        ("text=a&more=1&to=text", 422, "search for images"),
        ("text=a&more=1&mode=words", 422, "choose another mode"),
        ("text=a&more=" + ",".join(["1"] * 101), 422, "at most 100"),
    ],
)
def test_wrong_feedback_is_named(kit, client, query, status, reason):
    assert reason in kit.error_of(client.get(f"/search?{query}"), status)
