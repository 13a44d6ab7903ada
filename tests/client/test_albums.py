"""Albums over HTTP; what each route does is tested with the routes."""

import pytest

from diptych.errors import ServiceError


@pytest.fixture
def ids(client):
    """The ids of three images; no test leaves an album."""
    yield [image.id for image in client.images()]
    assert [(album.id, album.images) for album in client.albums.list()] == [(0, 0)]


def test_albums_are_made_filled_and_deleted(client, ids):
    albums = client.albums
    made = albums.create("Norway <2026> & “more”")
    assert (made.name, made.images) == ("Norway <2026> & “more”", 0)
    assert albums.add(made.id, ids[:2]) == 2
    assert albums.add(made.id, tuple(ids)) == 1
    assert albums.remove(made.id, ids[:1]) == 1
    assert albums.rename(made.id, "Oslo").name == "Oslo"
    assert [(album.id, album.name, album.images) for album in albums.list()][1:] == [(made.id, "Oslo", 2)]
    assert {hit.id for hit in client.hits("thing", album=made.id)} == set(ids[1:])
    assert {image.id for image in client.images(album=made.id)} == set(ids[1:])
    albums.delete(made.id, index="photos")
    with pytest.raises(ServiceError, match=f"no album {made.id} in this index"):
        albums.add(made.id, ids)


def test_the_favourites_are_an_album(client, ids):
    assert client.albums.add(0, ids[:1]) == 1
    assert client.albums.list()[0].images == 1
    assert client.albums.remove(0, ids) == 1


def test_more_images_than_one_request_takes_are_sent_in_parts(client, ids, monkeypatch):
    monkeypatch.setattr("diptych.client.albums.MAX_CHOSEN", 2)
    assert client.albums.add(0, ids) == 3
    assert client.albums.add(0, []) == 0
    assert client.albums.remove(0, ids) == 3
