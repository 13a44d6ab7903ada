"""The albums of a served index, as a client sees them: the favourites have the id 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diptych.client.transport import Body, Transport
from diptych.serve.schemas.answers import AlbumAbout, AlbumChange, AlbumName, AlbumsAnswer
from diptych.serve.schemas.fields import MAX_CHOSEN


class AlbumsClient:
    """Reads and changes the albums of an index; images are named by their ids. It is `Client.albums`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, index: str = "") -> list[AlbumAbout]:
        """All albums: the favourites, then the others by name."""
        return self._transport.ask(AlbumsAnswer, "GET", "/albums", [("index", index)]).albums

    def create(self, name: str, index: str = "") -> AlbumAbout:
        """A new album."""
        return self._transport.ask(AlbumAbout, "POST", "/albums", [("index", index)], Body.of_json({"name": name}))

    def rename(self, album: int, name: str, index: str = "") -> AlbumName:
        """Give an album another name."""
        body = Body.of_json({"name": name})
        return self._transport.ask(AlbumName, "PATCH", f"/albums/{album}", [("index", index)], body)

    def delete(self, album: int, index: str = "") -> None:
        """Delete an album; its images stay in the index."""
        self._transport.send("DELETE", f"/albums/{album}", [("index", index)])

    def add(self, album: int, ids: Sequence[int], index: str = "") -> int:
        """Add images to an album, or with 0 to the favourites; how many it did not have."""
        return self._change(f"/albums/{album}/images", ids, index)

    def remove(self, album: int, ids: Sequence[int], index: str = "") -> int:
        """Remove images from an album; how many it had."""
        return self._change(f"/albums/{album}/remove", ids, index)

    def _change(self, path: str, ids: Sequence[int], index: str) -> int:
        query = [("index", index)]
        bodies = (Body.of_json({"ids": part}) for part in _parts(ids))
        return sum(self._transport.ask(AlbumChange, "POST", path, query, body).changed for body in bodies)


def _parts(ids: Sequence[int]) -> Iterator[list[int]]:
    for begin in range(0, len(ids), MAX_CHOSEN):
        yield [int(id) for id in ids[begin : begin + MAX_CHOSEN]]
