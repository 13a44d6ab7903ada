"""/export: files and lists, with images that are gone."""

import io
import json
import zipfile

import pytest
from starlette.testclient import TestClient

from diptych.index.entries import Entry
from diptych.serve.app import create_app
from diptych.serve.routes.export import listing


@pytest.fixture
def served(kit, searcher, folder):
    """A client on this machine, with the ids by key."""
    app = create_app({"photos": searcher})
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5)) as client:
        client.ids = dict(searcher.store.database.rows("SELECT key, id FROM entries"))
        client.folder = folder
        yield client


def export(client, keys, form="zip", **options):
    ids = [client.ids[key] if isinstance(key, str) else key for key in keys]
    return client.post("/export", json={"ids": ids, "form": form}, **options)


def unpacked(reply):
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/zip"
    assert reply.headers["content-disposition"] == 'attachment; filename="pictures.zip"'
    archive = zipfile.ZipFile(io.BytesIO(reply.content))
    return {name: archive.read(name) for name in archive.namelist()}


def test_files_are_exported_once_each(served):
    found = unpacked(export(served, ["red.jpg", "below/blue.jpg", "red.jpg", "red.jpg#0"]))
    assert found == {
        "red.jpg": (served.folder / "red.jpg").read_bytes(),
        "blue.jpg": (served.folder / "below" / "blue.jpg").read_bytes(),
    }


def test_what_is_gone_is_listed_and_the_rest_delivered(served, kit):
    (served.folder / "red.jpg").unlink()
    found = unpacked(export(served, ["red.jpg", "green.jpg", 4711]))
    assert sorted(found) == ["green.jpg", "missing.txt"]
    missing = found["missing.txt"].decode()
    assert "red.jpg: the file no longer exists" in missing
    assert "entry 4711: no longer in the index" in missing
    assert "none of these images has a file" in kit.error_of(export(served, ["red.jpg"]), 404)
    assert "none of these entries is in this index" in kit.error_of(export(served, [4711, 4712]), 404)


def test_a_file_outside_of_the_folder_is_never_exported(served, tmp_path):
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    (served.folder / "red.jpg").unlink()
    (served.folder / "red.jpg").symlink_to(tmp_path / "secret.jpg")
    found = unpacked(export(served, ["red.jpg", "green.jpg"]))
    assert sorted(found) == ["green.jpg", "missing.txt"]


def test_a_drawn_picture_has_no_file_but_a_line(served, searcher):
    with searcher.store.edit_albums() as edit:
        edit._database.rows("UPDATE entries SET path = NULL WHERE key = 'red.jpg'")
    missing = unpacked(export(served, ["red.jpg", "green.jpg"]))["missing.txt"].decode()
    assert "red.jpg: the image is not in a file" in missing
    assert export(served, ["red.jpg"], "list").text == "red.jpg\n"


def test_a_list_has_paths_here_and_keys_elsewhere(served, searcher):
    reply = export(served, ["red.jpg", "below/blue.jpg", "red.jpg"], "list")
    assert reply.text == f"{served.folder / 'red.jpg'}\n{served.folder / 'below/blue.jpg'}\n"
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    with TestClient(create_app({"photos": searcher}), base_url="http://localhost", client=("10.0.0.8", 5)) as remote:
        remote.ids = served.ids
        assert export(remote, ["red.jpg", "below/blue.jpg"], "list").text == "red.jpg\nbelow/blue.jpg\n"


def test_a_form_is_answered_like_json(served, kit):
    ids = [served.ids["red.jpg"], served.ids["below/blue.jpg"]]
    form = {"body": json.dumps({"ids": ids, "form": "list"})}
    assert served.post("/export", data=form).text == export(served, ids, "list").text
    assert sorted(unpacked(served.post("/export", data={"body": json.dumps({"ids": ids})}))) == ["blue.jpg", "red.jpg"]
    for wrong, reason in (({"ids": "1"}, "body is missing"), ({"body": "{"}, "not JSON"), ({"body": "{}"}, "ids is")):
        assert reason in kit.error_of(served.post("/export", data=wrong), 422)
    assert "must be JSON" in kit.error_of(served.post("/export", files={"body": b"{}"}), 415)
    origin = {"origin": "http://evil.example"}
    assert "may not use" in kit.error_of(served.post("/export", data=form, headers=origin), 403)
    most = {"body": json.dumps({"ids": [2**40 + number for number in range(10_000)]})}
    assert "none of these entries" in kit.error_of(served.post("/export", data=most), 404)


def test_a_video_has_one_line_however_many_of_its_frames_are_exported():
    frames = [entry_of(number, f"a#b/film.mp4#{number}.0", path, number) for number, path in ((1, None), (2, None))]
    assert (
        listing([*frames, entry_of(3, "a#b/photo#3.jpg", None, None)], local=False) == "a#b/film.mp4\na#b/photo#3.jpg\n"
    )
    assert (
        listing([entry_of(1, "f.mp4#1.0", "/p/f.mp4", 1), entry_of(2, "f.mp4#2.0", "/p/f.mp4", 2)], True)
        == "/p/f.mp4\n"
    )


def entry_of(id, key, path, moment):
    return Entry(id, "image", key, id, None, path, "", None, None, 1, 1, {}, moment)


def test_a_name_with_a_line_break_stays_one_line(kit, tmp_path):
    kit.fill(tmp_path / "photos")
    (tmp_path / "photos" / "red.jpg").rename(tmp_path / "photos" / "re\nd.jpg")
    searcher = kit.searcher_of(tmp_path / "photos", tmp_path / "photos.diptych")
    with kit.served({"photos": searcher}) as client:
        client.ids = dict(searcher.store.database.rows("SELECT key, id FROM entries"))
        (line,) = export(client, ["re\nd.jpg"], "list").text.splitlines()
        assert json.loads(line) == "re\nd.jpg"
        assert list(unpacked(export(client, ["re\nd.jpg"]))) == ["re_d.jpg"]
    searcher.store.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"ids": []}, "ids: "),
        ({"ids": [1] * 10_001}, "at most 10000"),
        ({"ids": [1], "form": "rar"}, "form: "),
        ({"ids": [-1]}, "ids.0"),
        ({}, "ids is missing"),
    ],
)
def test_mistakes_are_named(served, kit, body, reason):
    assert reason in kit.error_of(served.post("/export", json=body), 422)


def test_ten_thousand_ids_fit(served):
    ids = [served.ids["red.jpg"], *range(10**6, 10**6 + 9_999)]
    missing = unpacked(export(served, ids))["missing.txt"].decode()
    assert missing.count("no longer in the index") == 9_999
