"""What happens to a service when what it serves changes or goes."""

import shutil
import sqlite3

from diptych.index.search import Searcher
from diptych.index.sqlite.store import IndexSpec, Store
from diptych.index.sync import sync


def found(client, text="red"):
    answer = client.get("/search", params={"text": text})
    assert answer.status_code == 200, answer.text
    return {hit["key"]: hit["id"] for hit in answer.json()["hits"]}


def test_a_removed_folder_leaves_search_and_thumbnails(kit, folder, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = found(client)
        shutil.rmtree(folder)
        assert found(client, "green") == ids
        gone = client.get(f"/image/{ids['red.jpg']}?size=large")
        assert (gone.status_code, gone.json()) == (
            404,
            {"error": "red.jpg: the file is not there any more; only its thumbnail is left"},
        )
        assert client.get(f"/image/{ids['red.jpg']}").status_code == 200
        assert client.get(f"/explain?id={ids['red.jpg']}&text=red").status_code == 200
        health = client.get("/health")
        assert health.status_code == 200
        assert health.json()["status"] == "degraded"
        assert health.json()["problems"] == [
            "photos: the folder of its images is not there; only thumbnails can be shown"
        ]


def test_what_is_indexed_meanwhile_is_found(kit, folder, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = found(client)
        (folder / "red.jpg").unlink()
        shutil.copy(folder / "green.jpg", folder / "new.jpg")
        sync(kit.Encoder(), str(folder), searcher.store.path)
        assert set(found(client)) == {"green.jpg", "below/blue.jpg"}  # equal photos are one hit
        assert client.get(f"/similar?id={ids['red.jpg']}").status_code == 404
        assert client.get(f"/image/{ids['red.jpg']}").status_code == 404
        sync(kit.Encoder(), str(folder), searcher.store.path, fresh=True)  # another file in its place
        assert set(found(client)) == {"green.jpg", "below/blue.jpg"}
        assert client.get("/health").json()["status"] == "ok"


def test_another_models_index_in_its_place_is_not_searched(kit, folder, searcher):
    class Other(kit.Encoder):
        address, identity, size = "runs/other", "other", 32

    with kit.served({"photos": searcher}) as client:
        found(client)
        sync(Other(), str(folder), searcher.store.path, fresh=True)
        for address in ("/search?text=red", "/similar?id=1", "/explain?id=1&text=red"):
            told = client.get(address)
            assert told.status_code == 503, told.text
            assert "another model" in told.json()["error"]
        assert "another model" in client.get("/health").json()["problems"][0]


def test_a_removed_index_is_served_as_it_was(kit, searcher):
    with kit.served({"photos": searcher}) as client:
        ids = found(client)
        searcher.store.path.unlink()
        assert found(client, "blue") == ids
        assert client.get("/health").json()["problems"] == [
            "photos: the file of the index was removed; it is served as it was, until the service ends"
        ]


def test_a_database_that_fails_is_told_and_survived(kit, searcher, monkeypatch):
    with kit.served({"photos": searcher, "empty": searcher}) as client:
        ids = found(client)

        def full(*_):
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(Store, "entries", full)
            patch.setattr(Store, "counts", full)
            for address in ("/search?text=red", f"/image/{ids['red.jpg']}", "/similar?id=1", "/indexes"):
                told = client.get(address)
                assert told.status_code == 503, address
                assert "disk is full" in told.json()["error"]
            health = client.get("/health")
            assert (health.status_code, health.json()["status"]) == (200, "degraded")
            assert "disk is full" in health.json()["problems"][0]
            assert "diptych_requests_total" in client.get("/metrics").text
        assert found(client) == ids
        assert client.get("/health").json()["status"] == "ok"


def test_an_empty_index_says_so(kit, tmp_path):
    spec = IndexSpec("runs/fake", "fake", 64, False, "float32", str(tmp_path), str(tmp_path), "0")
    with kit.served({"empty": Searcher(Store.create(tmp_path / "index", spec), kit.Encoder())}) as client:
        told = client.get("/search?text=red").json()
        assert (told["hits"], told["found"], told["searched"]) == ([], False, 0)
        assert told["message"] == "The index has no images yet; `diptych index` adds some."
        assert client.get("/health").json()["status"] == "ok"
        assert client.get("/image/1").status_code == 404
