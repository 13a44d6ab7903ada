"""The page is served from a fixed list of files, and the service can be started again."""

import pytest

from diptych.serve.app import PAGE_FOLDER, PAGE_TYPES, create_app

FILES = sorted(file for file in PAGE_FOLDER.iterdir() if file.suffix != ".html")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_of_the_page_is_served(client, file):
    response = client.get(f"/page/{file.name}")
    assert response.content == file.read_bytes()
    assert response.headers["content-type"] == PAGE_TYPES[file.suffix]
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(("address", "name"), [("/", "index.html"), ("/docs", "docs.html")])
def test_documents_have_the_shared_beginning(client, address, name):
    response = client.get(address)
    before, after = (PAGE_FOLDER / name).read_text().split("<!-- head.html -->\n")
    assert response.text == before + (PAGE_FOLDER / "head.html").read_text() + after
    assert response.headers["content-type"] == PAGE_TYPES[".html"]
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["../app.py", "%2e%2e/app.py", "/etc/passwd", "none.js", "head.html", ""])
def test_no_other_file_is_served(kit, client, name):
    kit.error_of(client.get(f"/page/{name}"), 404)


def test_a_closed_service_can_be_used_again(kit, searcher):
    app = create_app({"photos": searcher})
    for _ in range(2):
        with kit.client_of(app) as client:
            assert client.get("/search?text=red").status_code == 200
            assert client.get("/favicon.ico").status_code == 204
