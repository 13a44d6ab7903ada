"""A client for a service of `diptych serve`: it needs no model, no index and no torch on this machine."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from typing_extensions import Self, TypedDict, Unpack

from diptych.client.albums import AlbumsClient
from diptych.client.transport import Body, Transport
from diptych.data.images import upright_rgb
from diptych.errors import ImageError, ServiceError
from diptych.index.entries import Kind, Mode
from diptych.serve.schemas.answers import (
    BatchAnswer,
    BatchProblem,
    FolderAbout,
    FoldersAnswer,
    FoundEntry,
    Health,
    HomeAnswer,
    IndexAbout,
    Indexes,
    ListedImage,
    SearchAnswer,
)
from diptych.serve.schemas.fields import MAX_IMAGES, MAX_QUERIES

ImageFile: TypeAlias = Path | bytes | Image.Image
Query: TypeAlias = str | int | ImageFile | None

_BYTES = "application/octet-stream"
_FORM_BYTES = 24 * 2**20  # of the images in one request


class FilterOptions(TypedDict, total=False):
    """Filters besides the folder, as `/search` and `/home` have them; `album` 0 is the favourites."""

    since: str
    until: str
    split: str
    where: Mapping[str, str]
    album: int


class SearchOptions(FilterOptions, total=False):
    """The options of a search, as `/search` has them; `text` is added to a picture, such as "at night".

    `more` and `less` are the ids of images that a search by text finds more and less like.
    """

    index: str
    to: Kind
    k: int
    mode: Mode
    folder: str
    cursor: str
    text: str
    more: Sequence[int]
    less: Sequence[int]


class Client:
    """A client for the service at an address; threads may share it.

    A request may take `timeout` seconds. A service that is busy (503) is asked again up to `retries` times. `headers`
    are sent with every request, such as those of a proxy with a login. Whatever fails is a `ServiceError` with the
    sentence and the `status` of the service.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        timeout: float = 30.0,
        retries: int = 2,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._transport = Transport(url, timeout, retries, headers or {})
        self.albums = AlbumsClient(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later request opens another."""
        self._transport.close()

    def search(self, query: Query = None, **options: Unpack[SearchOptions]) -> SearchAnswer:
        """The answer to a text, to the id of an entry, or to an image (a `Path`, the bytes of a file, or a PIL image).

        Without any of these, `more` names images, and the answer has more like them.

        The options are those of `/search`: `k`, `to`, `folder` and so on. `answer.hits` are the hits, best first, each
        with its `score`, `key` and `captions`; `answer.next` is the `cursor` of the next page, if there is one.
        """
        if query is None or isinstance(query, str):
            body = Body.of_json(options if query is None else {**options, "text": query})
            return self._transport.ask(SearchAnswer, "POST", "/search", body=body)
        in_url = _in_url(options)
        if isinstance(query, int):
            return self._transport.ask(SearchAnswer, "GET", "/similar", [("id", query), *in_url])
        body = Body(image_bytes(query), _BYTES)
        return self._transport.ask(SearchAnswer, "POST", "/similar", in_url, body)

    def search_batch(self, texts: Sequence[str], **options: Unpack[SearchOptions]) -> list[SearchAnswer]:
        """One answer per text; they share the passes of the model. The error of a text names its position."""
        answers: list[SearchAnswer] = []
        for begin in range(0, len(texts), MAX_QUERIES):
            queries = [{"text": text, **options} for text in texts[begin : begin + MAX_QUERIES]]
            body = Body.of_json({"queries": queries})
            for answer in self._transport.ask(BatchAnswer, "POST", "/search/batch", body=body).answers:
                if isinstance(answer, BatchProblem):
                    raise ServiceError(f"texts.{len(answers)}: {answer.error}", answer.status)
                answers.append(answer)
        return answers

    def hits(self, query: Query = None, **options: Unpack[SearchOptions]) -> Iterator[FoundEntry]:
        """All hits of a search, best first, page by page as they are needed; `k` is the number of hits per page."""
        if query is not None and not isinstance(query, (str, int)):
            query = image_bytes(query)  # a file is read once
        options = {"k": 100, **options}
        while True:
            answer = self.search(query, **options)
            yield from answer.hits
            if answer.next is None:
                return
            options["cursor"] = answer.next

    def encode_texts(self, texts: Sequence[str], index: str = "") -> NDArray[np.float32]:
        """The vectors of texts, (texts, size), or of a model that encodes sets, (texts, places, size), by its model."""
        parts = []
        for begin in range(0, len(texts), MAX_QUERIES):
            body = Body.of_json({"index": index, "texts": list(texts[begin : begin + MAX_QUERIES])})
            parts.append(self._encoded(body))
        return _joined(parts)

    def encode_images(self, images: Sequence[str | ImageFile], index: str = "") -> NDArray[np.float32]:
        """The vectors of images, each a path, the bytes of a file, or a PIL image; see `encode_texts`."""
        parts: list[NDArray[np.float32]] = []
        batch: list[tuple[str, bytes]] = []
        for image in images:
            content = image_bytes(Path(image) if isinstance(image, str) else image)
            size = sum(len(earlier) for _, earlier in batch) + len(content)
            if batch and (len(batch) == MAX_IMAGES or size > _FORM_BYTES):
                parts.append(self._encoded(Body.of_form([("index", index)], batch)))
                batch = []
            batch.append(("images", content))
        if batch:
            parts.append(self._encoded(Body.of_form([("index", index)], batch)))
        return _joined(parts)

    def images(self, folder: str = "", index: str = "", **filters: Unpack[FilterOptions]) -> Iterator[ListedImage]:
        """All images of a folder and below it, or of the index, newest first, page by page as they are needed."""
        cursor = ""
        while True:
            page = self.home(folder, index=index, k=500, cursor=cursor, **filters)
            yield from page.images
            if page.next is None:
                return
            cursor = page.next

    def home(
        self, folder: str = "", *, index: str = "", k: int = 60, cursor: str = "", **filters: Unpack[FilterOptions]
    ) -> HomeAnswer:
        """One page of the images of a folder and below it, or of the index, newest first."""
        query = [("folder", folder), ("index", index), ("k", k), ("cursor", cursor), *_in_url(filters)]
        return self._transport.ask(HomeAnswer, "GET", "/home", query)

    def folders(self, parent: str = "", index: str = "") -> list[FolderAbout]:
        """The folders directly in a folder, or at the top of the source."""
        return self._transport.ask(FoldersAnswer, "GET", "/folders", [("parent", parent), ("index", index)]).folders

    def image(self, id: int, size: Literal["thumbnail", "large"] = "thumbnail", index: str = "") -> bytes:
        """The picture of an entry as JPEG."""
        return self._transport.send("GET", f"/image/{id}", [("size", size), ("index", index)]).content

    def export(
        self, ids: Sequence[int], file: str | Path, form: Literal["zip", "list"] = "zip", index: str = ""
    ) -> Path:
        """Write the files of up to 10,000 images into a ZIP, or a list of their paths into a text file."""
        body = Body.of_json({"ids": [int(id) for id in ids], "form": form})
        self._transport.save("/export", [("index", index)], body, Path(file))
        return Path(file)

    def indexes(self) -> list[IndexAbout]:
        """The served indexes, the default first."""
        return self._transport.ask(Indexes, "GET", "/indexes").indexes

    def health(self) -> Health:
        """The state of the service, and its problems, if any."""
        return self._transport.ask(Health, "GET", "/health")

    def _encoded(self, body: Body) -> NDArray[np.float32]:
        reply = self._transport.send("POST", "/encode", body=body, headers={"Accept": _BYTES})
        try:
            shape = [int(size) for size in reply.headers["x-shape"].split(",")]
            return np.frombuffer(reply.content, "<f4").reshape(shape).astype(np.float32)
        except (KeyError, ValueError):
            raise self._transport.unreadable() from None


def image_bytes(image: ImageFile) -> bytes:
    """An image as the bytes of a file."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, Image.Image):
        out = io.BytesIO()
        upright_rgb(image, "the image").save(out, "PNG", compress_level=1)  # PNG has neither all modes nor orientation
        return out.getvalue()
    try:
        return image.read_bytes()
    except OSError as reason:
        raise ImageError(f"{image}: cannot be read ({reason.strerror})") from None


def _in_url(options: FilterOptions) -> list[tuple[str, Any]]:
    """The options of a search, or filters, as they are written in a URL."""
    pairs: list[tuple[str, Any]] = []
    for name, value in options.items():
        if name in ("more", "less"):
            pairs += [(name, id) for id in cast(Sequence[int], value)]
        elif name != "where":
            pairs.append((name, value))
    return pairs + [("where", f"{column}={value}") for column, value in options.get("where", {}).items()]


def _joined(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """All rows as one array; sets are padded with zeros to the size of the largest."""
    if not parts:
        return np.zeros((0, 0), np.float32)
    if parts[0].ndim == 3:
        places = max(part.shape[1] for part in parts)
        parts = [np.pad(part, ((0, 0), (0, places - part.shape[1]), (0, 0))) for part in parts]
    return np.concatenate(parts)
