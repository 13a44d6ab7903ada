"""`diptych album`: albums from the command line."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.errors import DiptychError
from diptych.index.backend import Content
from diptych.index.sources.listing import ImageInfo
from diptych.index.spec import IndexSpec
from diptych.index.sqlite.store import Store
from diptych.index.vectors import encode


@pytest.fixture
def index(tmp_path):
    """An index of three images, two of which are in a folder."""
    (tmp_path / "photos" / "trip").mkdir(parents=True)
    spec = IndexSpec("run", "i" * 64, 4, False, "float32", str(tmp_path / "photos"), str(tmp_path / "photos"), "0")
    store = Store.create(tmp_path / "x.diptych", spec)
    writer = store.writer([])
    with writer.transaction():
        for number, key in enumerate(["a.jpg", "trip/b.jpg", "trip/c.jpg"]):
            Image.new("RGB", (4, 4)).save(tmp_path / "photos" / key)
            vector = encode(np.ones((1, 4), np.float32), "float32")[0]
            content = writer.add(Content("image", bytes([number]), vector, None, 0, None, b""))
            writer.put_image(key, content, (1, 1, None), ImageInfo(key, ()))
    store.close()
    return tmp_path / "x.diptych"


def album(*arguments):
    found = CliRunner().invoke(app, ["album", *map(str, arguments)])
    if isinstance(found.exception, DiptychError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.output


def test_albums_are_created_filled_read_and_deleted(index, tmp_path):
    photos = tmp_path / "photos"
    assert "created Trip" in album("create", index, " Trip ")
    assert "added 2 images to trip" in album("add", index, "trip", photos / "trip" / "b.jpg", "a.jpg")
    assert "added 1 image to Trip; 1 was in it already" in album("add", index, "Trip", "1", "trip/c.jpg")
    assert album("list", index) == "Favourites: 0 images\nTrip: 3 images\n"
    assert album("paths", index, "Trip").splitlines() == [
        str(photos / key) for key in ("a.jpg", "trip/b.jpg", "trip/c.jpg")
    ]
    assert "removed 1 image from Trip" in album("remove", index, "Trip", "1")
    assert album("paths", index, "TRIP", "-0") == f"{photos / 'trip/b.jpg'}\0{photos / 'trip/c.jpg'}\0"
    assert "renamed Trip to Sea" in album("rename", index, "Trip", "Sea")
    assert [row["name"] for row in json.loads(album("list", index, "--json"))] == ["Favourites", "Sea"]
    assert "deleted sea" in album("delete", index, "sea")
    assert album("list", index) == "Favourites: 0 images\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["create", "Favourites"], "there is already an album"),
        (["create", "a\nb"], "control character"),
        (["add", "Favorites", "1"], "no album 'Favorites' in the index; did you mean 'favourites'"),
        (["add", "Favourites", "nowhere.jpg"], "nowhere.jpg: not an image of this index"),
        (["add", "Favourites", "4711"], "no entry 4711"),
        (["delete", "Favourites"], "cannot be deleted"),
        (["paths", "None"], "no album 'None'"),
    ],
)
def test_mistakes_are_one_line(index, arguments, reason):
    with pytest.raises(DiptychError, match=reason) as error:
        album(arguments[0], index, *arguments[1:])
    assert "\n" not in str(error.value)
