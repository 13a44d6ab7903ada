"""The state of the service: several indexes, and what happens when an index changes or disappears."""

import shutil
import sqlite3

from diptych.index.search import Searcher
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.sync import sync


def found(client, text="red"):
    answer = client.get("/search", params={"text": text})
    assert answer.status_code == 200, answer.text
    return {hit["key"]: hit["id"] for hit in answer.json()["hits"]}


def test_the_first_index_is_the_default(kit, two):
    with kit.served(two) as client:
        assert len(kit.keys(client.get("/search?text=red"))) == 3
        assert kit.keys(client.get("/search?text=red&index=second")) == ["below/red.jpg", "blue.jpg"]
        refused = client.get("/search?text=red&index=secund")
        assert refused.status_code == 404
        assert "did you mean 'second'?" in refused.json()["error"]


def test_a_removed_folder_leaves_search_and_thumbnails(kit, folder, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = found(client)
        shutil.rmtree(folder)
        assert found(client, "green") == ids
        gone = client.get(f"/image/{ids['red.jpg']}?size=large")
        assert (gone.status_code, gone.json()) == (
            404,
            {"error": "red.jpg: the file no longer exists; only its thumbnail is left"},
        )
        assert client.get(f"/image/{ids['red.jpg']}").status_code == 200
        assert client.get(f"/explain?id={ids['red.jpg']}&text=red").status_code == 200
        health = client.get("/health")
        assert health.status_code == 200
        assert health.json()["status"] == "degraded"
        assert health.json()["problems"] == [
            "photos: the folder of its images does not exist; only thumbnails can be shown"
        ]


def test_changes_of_the_index_are_seen(kit, folder, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = found(client)
        (folder / "red.jpg").unlink()
        shutil.copy(folder / "green.jpg", folder / "new.jpg")
        sync(kit.FakeModel(), str(folder), searcher.store.path)
        assert set(found(client)) == {"green.jpg", "below/blue.jpg"}  # equal photos are one hit
        assert client.get(f"/similar?id={ids['red.jpg']}").status_code == 404
        assert client.get(f"/image/{ids['red.jpg']}").status_code == 404
        sync(kit.FakeModel(), str(folder), searcher.store.path, fresh=True)  # another file in its place
        assert set(found(client)) == {"green.jpg", "below/blue.jpg"}
        assert client.get("/health").json()["status"] == "ok"


def test_an_index_that_another_model_rebuilt_is_not_searched(kit, folder, searcher):
    class Other(kit.FakeModel):
        address, identity, size = "runs/other", "other", 32

    with kit.served({"photos": searcher}) as client:
        found(client)
        sync(Other(), str(folder), searcher.store.path, fresh=True)
        for address in ("/search?text=red", "/similar?id=1", "/explain?id=1&text=red"):
            reply = client.get(address)
            assert reply.status_code == 503, reply.text
            assert "another model" in reply.json()["error"]
        assert "another model" in client.get("/health").json()["problems"][0]


def test_a_removed_index_is_served_as_it_was(kit, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = found(client)
        searcher.store.path.unlink()
        assert found(client, "blue") == ids
        assert client.get("/health").json()["problems"] == [
            "photos: the index file was deleted; it is served as it was until the service ends"
        ]


def test_a_failing_database_is_reported_and_survived(kit, searcher, monkeypatch):
    with kit.served({"photos": searcher, "empty": searcher}) as client:
        ids = found(client)

        def full(*_):
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(Store, "entries", full)
            patch.setattr(Store, "counts", full)
            for address in ("/search?text=red", f"/image/{ids['red.jpg']}", "/similar?id=1", "/indexes"):
                reply = client.get(address)
                assert reply.status_code == 503, address
                assert "disk is full" in reply.json()["error"]
            health = client.get("/health")
            assert (health.status_code, health.json()["status"]) == (200, "degraded")
            assert "disk is full" in health.json()["problems"][0]
            assert "diptych_requests_total" in client.get("/metrics").text
        assert found(client) == ids
        assert client.get("/health").json()["status"] == "ok"


def test_an_empty_index_says_so(kit, tmp_path):
    spec = IndexSpec("runs/fake", "fake", 64, False, "float32", str(tmp_path), str(tmp_path), "0")
    with kit.served({"empty": Searcher(Store.create(tmp_path / "index", spec), kit.FakeModel())}) as client:
        reply = client.get("/search?text=red").json()
        assert (reply["hits"], reply["found"], reply["searched"]) == ([], False, 0)
        assert reply["message"] == "The index has no images yet; `diptych index` adds some."
        assert client.get("/health").json()["status"] == "ok"
        assert client.get("/image/1").status_code == 404
