"""Albums and favourites over HTTP: what changes, who sees it, and what is refused."""

import threading
from types import SimpleNamespace

import pytest

from diptych.errors import IndexFileError
from diptych.index.sqlite.store import Store
from diptych.serve.errors import RequestError
from diptych.serve.routes.albums import editable
from diptych.serve.schemas.answers import AlbumAbout, AlbumsAnswer


@pytest.fixture
def served(kit, searcher):
    """A client, with the ids by key."""
    with kit.served({"photos": searcher}) as client:
        client.ids = dict(searcher.store.database.rows("SELECT key, id FROM entries"))
        yield client


def albums(client):
    found = AlbumsAnswer.model_validate(client.get("/albums").raise_for_status().json())
    assert found.index == "photos"
    return {album.name: (album.id, album.images, album.missing) for album in found.albums}


def create(client, name):
    reply = client.post("/albums", json={"name": name})
    assert reply.status_code == 201, reply.text
    return AlbumAbout.model_validate(reply.json()).id


def test_an_album_is_created_filled_searched_browsed_and_deleted(served, kit):
    trip = create(served, " Trip ")
    red, blue = served.ids["red.jpg"], served.ids["below/blue.jpg"]
    added = served.post(f"/albums/{trip}/images", json={"ids": [red, blue, red]}).json()
    assert added == {"id": trip, "changed": 2}
    assert albums(served) == {"Favourites": (0, 0, 0), "Trip": (trip, 2, 0)}
    assert kit.keys(served.get(f"/search?text=red&album={trip}")) == ["red.jpg", "below/blue.jpg"]
    assert kit.keys(served.post("/search", json={"text": "red", "album": trip})) == ["red.jpg", "below/blue.jpg"]
    assert kit.keys(served.get(f"/search?text=red&to=text&album={trip}")) == ["red.jpg#0", "below/blue.jpg#0"]
    assert kit.keys(served.get(f"/similar?id={red}&album={trip}")) == ["below/blue.jpg"]
    assert {image["key"] for image in served.get(f"/home?album={trip}").json()["images"]} == {
        *("red.jpg", "below/blue.jpg")
    }
    assert served.post(f"/albums/{trip}/remove", json={"ids": [blue]}).json() == {"id": trip, "changed": 1}
    assert kit.keys(served.get(f"/search?text=red&album={trip}")) == ["red.jpg"]  # not what was cached
    renamed = served.patch(f"/albums/{trip}", json={"name": "Holiday"})
    assert renamed.json() == {"id": trip, "name": "Holiday"}
    assert served.delete(f"/albums/{trip}").status_code == 204
    assert albums(served) == {"Favourites": (0, 0, 0)}
    assert "no album" in kit.error_of(served.get(f"/search?text=red&album={trip}"), 404)
    assert "no album" in kit.error_of(served.get(f"/home?album={trip}"), 404)


def test_favourites_are_album_zero(served, kit):
    red = served.ids["red.jpg"]
    assert served.post("/favourites", json={"ids": [red], "favourite": True}).json() == {"id": 0, "changed": 1}
    assert served.post("/favourites", json={"ids": [red], "favourite": True}).json() == {"id": 0, "changed": 0}
    assert kit.keys(served.get("/search?text=blue&album=0")) == ["red.jpg"]
    assert served.get(f"/entry/{red}").json()["favourite"] is True
    assert served.post("/favourites", json={"ids": [red], "favourite": False}).json() == {"id": 0, "changed": 1}
    assert albums(served)["Favourites"] == (0, 0, 0)


def test_what_another_process_does_is_seen(served, searcher):
    other = Store.open(searcher.store.path)
    with other.edit_albums() as edit:
        album = edit.create("other")
        edit.add(album, [served.ids["red.jpg"]])
    assert albums(served)["other"] == (album, 1, 0)
    other.close()


def test_pages_of_an_album_stay_right_when_it_changes(served, kit):
    red, green, blue = (served.ids[key] for key in ("red.jpg", "green.jpg", "below/blue.jpg"))
    trip = create(served, "Trip")
    served.post(f"/albums/{trip}/images", json={"ids": [red, green, blue]})
    address = f"/search?text=red&album={trip}&k=1"
    first = served.get(address).json()
    second = served.get(f"{address}&cursor={first['next']}")
    served.post(f"/albums/{trip}/remove", json={"ids": [first["hits"][0]["id"]]})
    third = served.get(f"{address}&cursor={second.json()['next']}")
    found = [first["hits"][0]["key"], *kit.keys(second), *kit.keys(third)]
    assert sorted(found) == ["below/blue.jpg", "green.jpg", "red.jpg"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "/albums", {"name": " "}, 422, "is empty"),
        ("POST", "/albums", {"name": "a\u0007b"}, 422, "control character"),
        ("POST", "/albums", {"name": "x" * 201}, 422, "use at most 200"),
        ("POST", "/albums", {"name": "x" * 1001}, 422, "name: "),
        ("POST", "/albums", {"name": "FAVOURITES"}, 422, "there is already an album"),
        ("POST", "/albums", {"name": 5}, 422, "name: "),
        ("POST", "/albums", {}, 422, "name is missing"),
        ("POST", "/albums?index=other", {"name": "a"}, 404, "no index"),
        ("PATCH", "/albums/77", {"name": "a"}, 404, "no album 77"),
        ("PATCH", "/albums/0", {"name": "a"}, 422, "favourites cannot be renamed"),
        ("DELETE", "/albums/77", None, 404, "no album 77"),
        ("DELETE", "/albums/0", None, 422, "favourites cannot be deleted"),
        ("DELETE", "/albums/-1", None, 404, "no such album"),
        ("DELETE", "/albums/" + "9" * 30, None, 404, "no such album"),
        ("POST", "/albums/0/images", {"ids": [4711]}, 404, "no entry 4711"),
        ("POST", "/albums/77/images", {"ids": [1]}, 404, "no album 77"),
        ("POST", "/albums/0/remove", {"ids": []}, 422, "ids: "),
        ("POST", "/albums/0/images", {"ids": ["1"]}, 422, "ids.0"),
        ("POST", "/albums/0/images", {"ids": [1] * 10_001}, 422, "at most 10000"),
        ("POST", "/favourites", {"ids": [1]}, 422, "favourite is missing"),
        ("GET", "/search?text=a&album=-1", None, 422, "album: "),
        ("GET", "/home?album=x", None, 422, "album: "),
    ],
)
def test_mistakes_change_nothing_and_are_named(served, kit, method, path, body, status, reason):
    options = {} if body is None else {"json": body}
    assert reason in kit.error_of(served.request(method, path, **options), status)
    assert albums(served) == {"Favourites": (0, 0, 0)}


def test_pages_of_other_sites_change_nothing(served, kit):
    elsewhere = {"Origin": "https://evil.example"}
    kit.error_of(served.post("/albums", json={"name": "a"}, headers=elsewhere), 403)
    kit.error_of(served.delete("/albums/0", headers=elsewhere), 403)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    kit.error_of(served.post("/albums", content="name=a", headers=form), 415)
    assert list(albums(served)) == ["Favourites"]


def test_a_busy_or_read_only_index_is_a_503_with_its_reason(served, kit, searcher, monkeypatch):
    monkeypatch.setattr("diptych.index.sqlite.database._TIMEOUT", 0.1)
    writer = Store.open(searcher.store.path, write=True)
    with writer.database.transaction():
        reply = served.post("/albums", json={"name": "a"})
    assert "another process is writing to it; wait and try again" in kit.error_of(reply, 503)
    writer.close()

    def refused(_):
        raise IndexFileError("photos: cannot be opened or written (attempt to write a readonly database)")

    monkeypatch.setattr("diptych.index.sqlite.albums.editing", refused)
    assert "cannot be opened or written" in kit.error_of(served.post("/albums", json={"name": "a"}), 503)
    assert served.get("/albums").status_code == 200


def test_edits_at_the_same_time_are_all_made(kit, searcher):
    failures = []
    with kit.served({"photos": searcher}) as client:

        def post(number):
            reply = client.post("/albums", json={"name": f"album {number}"})
            if reply.status_code != 201:
                failures.append(reply.text)

        threads = [threading.Thread(target=post, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(albums(client)) == 9


def test_a_backend_without_albums_says_so():
    with pytest.raises(RequestError, match="keeps no albums"):
        editable(SimpleNamespace(store=object()))
