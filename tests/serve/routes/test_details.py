"""/entry: details of an image, and who may know where it is."""

import numpy as np
import pytest
from starlette.testclient import TestClient

from diptych.serve.app import create_app
from diptych.serve.routes.details import details_of
from diptych.serve.schemas.answers import EntryDetails


@pytest.fixture
def ids(searcher):
    return dict(searcher.store.database.rows("SELECT key, id FROM entries"))


def test_an_image_is_described(kit, searcher, ids, folder):
    with searcher.store.edit_albums() as edit:
        edit.add(edit.create("Trip"), [ids["red.jpg"]])
        edit.add(0, [ids["red.jpg"]])
    with kit.served({"photos": searcher}) as client:
        reply = client.get(f"/entry/{ids['red.jpg']}")
        found = EntryDetails.model_validate(reply.raise_for_status().json())
        other = client.get(f"/entry/{ids['below/blue.jpg']}").json()
        of_text = client.get(f"/entry/{ids['red.jpg#0']}").json()
    assert (found.key, found.folder, found.width, found.height) == ("red.jpg", "", 60, 40)
    assert found.bytes == (folder / "red.jpg").stat().st_size
    assert (found.taken, found.day_source, found.captions) == (None, "file", ["a red thing"])
    assert found.day is not None
    assert (found.favourite, [album.name for album in found.albums]) == (True, ["Trip"])
    assert (other["folder"], other["favourite"], other["albums"]) == ("below", False, [])
    assert of_text == reply.json()


def test_a_file_that_is_gone_is_known(kit, searcher, ids, folder):
    with kit.served({"photos": searcher}) as client:
        address = f"/entry/{ids['red.jpg']}"
        assert client.get(address).json()["has_file"] is True
        (folder / "red.jpg").unlink()
        assert client.get(address).json()["has_file"] is False


def test_only_clients_on_this_machine_learn_where_it_is(searcher, ids, folder):
    app = create_app({"photos": searcher}, hosts=["photos.lan"])
    address = f"/entry/{ids['red.jpg']}"

    def path(host="127.0.0.1:8000", client="127.0.0.1", **headers):
        with TestClient(app, base_url=f"http://{host}", client=(client, 1)) as one:
            return one.get(address, headers=headers).raise_for_status().json()["path"]

    assert path() == path(host="localhost", client="::1") == str(folder / "red.jpg")
    assert path(client="192.168.1.5") is None
    assert path(host="photos.lan") is None
    assert path(**{"X-Forwarded-For": "1.2.3.4"}) is None


@pytest.mark.parametrize("id", ["4711", "red.jpg", "0", "..%2Fphotos.diptych"])
def test_other_ids_are_refused(kit, client, id):
    kit.error_of(client.get(f"/entry/{id}"), 404)


def test_mistakes_are_named(kit, client):
    assert "no index" in kit.error_of(client.get("/entry/1?index=other"), 404)
    assert "no such field" in kit.error_of(client.get("/entry/1?size=large"), 422)


def test_a_backend_without_details_knows_the_day(searcher, ids):
    class Plain:
        store = object()

    (entry,) = searcher.store.entries(np.array([ids["red.jpg"]]))
    assert details_of(Plain, entry).day == entry.taken
    assert details_of(Plain, entry).bytes is None
