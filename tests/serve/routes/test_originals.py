"""/original: files as they are, and what is never sent."""

import io
import os
from contextlib import suppress

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.testclient import TestClient

from diptych.serve.app import create_app
from diptych.serve.errors import RequestError
from diptych.serve.routes import originals
from diptych.serve.routes.originals import check_range


@pytest.fixture
def served(kit, searcher, folder):
    """A client, with the ids by key."""
    with kit.served({"photos": searcher}) as client:
        client.ids = dict(searcher.store.database.rows("SELECT key, id FROM entries"))
        client.folder = folder
        yield client


def test_a_file_is_sent_as_it_is(served):
    content = (served.folder / "red.jpg").read_bytes()
    reply = served.get(f"/original/{served.ids['red.jpg']}")
    assert (reply.status_code, reply.content) == (200, content)
    assert reply.headers["content-type"] == "image/jpeg"
    assert reply.headers["content-disposition"] == 'attachment; filename="red.jpg"'
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert {"sandbox", "frame-ancestors 'self'"} <= set(reply.headers["content-security-policy"].split("; "))
    assert served.get(f"/original/{served.ids['red.jpg#0']}").content == content  # of a text that of its image
    shown = served.get(f"/original/{served.ids['red.jpg']}?inline=1")
    assert (shown.content, shown.headers["content-disposition"]) == (content, 'inline; filename="red.jpg"')
    head = served.head(f"/original/{served.ids['red.jpg']}")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(content)))


def test_the_headers_of_a_large_file_are_sent_without_reading_it(served, monkeypatch):
    with (served.folder / "red.jpg").open("ab") as file:
        file.truncate(50_000_000)
    read = []
    monkeypatch.setattr("starlette.responses.FileResponse.chunk_size", 1000)
    pull = anyio.AsyncFile.read
    monkeypatch.setattr(anyio.AsyncFile, "read", lambda self, size=-1: read.append(size) or pull(self, size))
    head = served.head(f"/original/{served.ids['red.jpg']}")
    assert head.headers["content-length"] == "50000000"
    assert sum(read) <= 1000


def test_parts_and_unchanged_files(served, kit):
    address = f"/original/{served.ids['red.jpg']}"
    content = (served.folder / "red.jpg").read_bytes()
    whole = served.get(address)
    part = served.get(address, headers={"range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, content[5:10])
    assert served.get(address, headers={"range": "bytes=-3"}).content == content[-3:]
    again = served.get(address, headers={"if-none-match": f'"x", {whole.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    for wrong in ("bytes=999999-", "bytes=9-5", "bytes=a-b", "lines=1-2", "bytes=", "bytes"):
        assert "is not in the file" in kit.error_of(served.get(address, headers={"range": wrong}), 416)


@given(st.text(alphabet="bytes=0123456789-, x", max_size=20), st.integers(0, 30))
def test_a_range_is_refused_or_passed_on(wanted, size):
    with suppress(RequestError):
        check_range(wanted, size)
        assert wanted.strip().startswith("bytes")
        assert size


def test_a_format_that_browsers_do_not_show_becomes_a_jpeg(served):
    form = io.BytesIO()
    Image.new("RGB", (60, 40), (250, 10, 10)).save(form, "TIFF")
    (served.folder / "red.jpg").write_bytes(form.getvalue())
    reply = served.get(f"/original/{served.ids['red.jpg']}")
    assert (reply.content, reply.headers["content-type"]) == (form.getvalue(), "image/tiff")
    shown = served.get(f"/original/{served.ids['red.jpg']}?inline=true")
    assert shown.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(shown.content)).size == (60, 40)


def test_markup_is_never_shown(served, kit):
    (served.folder / "red.jpg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>")
    reply = served.get(f"/original/{served.ids['red.jpg']}")
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"].startswith("attachment")
    shown = served.get(f"/original/{served.ids['red.jpg']}?inline=1")
    assert "can no longer be read as an image" in kit.error_of(shown, 404)


def test_a_file_that_is_gone_or_outside_is_one_sentence(served, kit, tmp_path):
    address = f"/original/{served.ids['red.jpg']}"
    (served.folder / "red.jpg").unlink()
    assert "red.jpg: the file no longer exists" in kit.error_of(served.get(address), 404)
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    (served.folder / "red.jpg").symlink_to(tmp_path / "secret.jpg")
    assert "no longer exists" in kit.error_of(served.get(address), 404)
    (served.folder / "red.jpg").unlink()
    os.mkfifo(served.folder / "red.jpg")
    assert "no longer exists" in kit.error_of(served.get(address), 404)


@pytest.mark.parametrize("id", ["4711", "red.jpg", "-1", "%2Fetc%2Fpasswd", ""])
def test_only_ids_name_files(served, kit, id):
    kit.error_of(served.get(f"/original/{id}"), 404)


def test_a_drawn_picture_has_no_file(served, kit, searcher):
    with searcher.store.edit_albums() as edit:
        edit._database.rows("UPDATE entries SET path = NULL WHERE key = 'red.jpg'")
    reply = served.get(f"/original/{served.ids['red.jpg']}")
    assert "red.jpg: the image is not in a file" in kit.error_of(reply, 409)


def test_unusual_names_are_encoded(kit, tmp_path):
    name = 'ein "schönes"\nBild; 1.jpg'
    kit.fill(tmp_path / "photos")
    (tmp_path / "photos" / "red.jpg").rename(tmp_path / "photos" / name)
    searcher = kit.searcher_of(tmp_path / "photos", tmp_path / "photos.diptych")
    with kit.served({"photos": searcher}) as client:
        ids = dict(searcher.store.database.rows("SELECT key, id FROM entries"))
        reply = client.get(f"/original/{ids[name]}")
    assert reply.headers["content-disposition"] == (
        "attachment; filename*=utf-8''ein%20%22sch%C3%B6nes%22%0ABild%3B%201.jpg"
    )
    searcher.store.close()


def revealing(searcher, **options):
    return TestClient(create_app({"photos": searcher}), base_url="http://127.0.0.1:8000", **options)


def test_a_folder_is_opened_for_users_of_this_machine_only(kit, served, searcher, monkeypatch):
    shown = []
    monkeypatch.setattr(originals, "reveal", shown.append)
    body = {"id": served.ids["red.jpg#0"]}
    with revealing(searcher, client=("127.0.0.1", 5)) as client:
        assert client.post("/reveal?index=photos", json=body).status_code == 204
        kit.error_of(client.post("/reveal", json=body, headers={"Origin": "https://evil.example"}), 403)
        kit.error_of(client.post("/reveal", content="id=1", headers={"Content-Type": "text/plain"}), 415)
        assert "no entry 4711" in kit.error_of(client.post("/reveal", json={"id": 4711}), 404)
    assert shown == [served.folder / "red.jpg"]
    with revealing(searcher, client=("192.168.1.9", 5)) as client:
        assert "only be opened from the machine" in kit.error_of(client.post("/reveal", json=body), 403)
    assert len(shown) == 1


def test_a_folder_that_cannot_be_opened_is_one_sentence(kit, served, searcher, monkeypatch):
    monkeypatch.setattr("diptych.serve.reveal.commands", lambda *_: [])
    with revealing(searcher, client=("127.0.0.1", 5)) as client:
        reply = client.post("/reveal", json={"id": served.ids["red.jpg"]})
        assert "no file manager could be opened on this machine; the file is in" in kit.error_of(reply, 409)
        (served.folder / "red.jpg").unlink()
        reply = client.post("/reveal", json={"id": served.ids["red.jpg"]})
        assert "no longer exists" in kit.error_of(reply, 404)
