"""Request bodies, read up to a limit, and uploaded images; an upload is never stored."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray
from PIL import Image
from starlette.requests import Request

from diptych.data.images import decode_bytes
from diptych.errors import ImageError
from diptych.index.decoding import photo_options
from diptych.model import Model
from diptych.models.engines.engine import Encodings
from diptych.serve.errors import RequestError
from diptych.serve.queries import LruCache, Upload

MAX_BYTES = 20 * 2**20
IMAGE_TOO_LARGE = f"the image has more than {MAX_BYTES >> 20} MB; send a smaller one"
MAX_PIXELS = 50_000_000
DISCARD_FACTOR = 5  # times the limit is read and discarded, because browsers show no response while they still send
IDLE_SECONDS = 30.0  # without receiving anything of a body
TOTAL_SECONDS = 300.0  # for a whole body
CONCURRENT = 4  # images that are received or wait to be decoded; further ones have to wait
PREPARED = 4  # images that stay prepared: the page sends each twice at the same time, for images and for texts


class Uploads:
    """Reads uploaded images: a few are in memory at a time, and one at a time is decoded, on a separate thread.

    `cached_image` returns the cached encoding of an image by its hash, if any; such an image is not decoded.
    """

    def __init__(self, cached_image: Callable[[Model, bytes], Encodings | None]) -> None:
        self._cached_image = cached_image
        self._prepared: LruCache[tuple[str, bytes], NDArray[Any]] = LruCache(PREPARED)
        self._sizes: dict[str, int | None] = {}
        self._start()

    async def prepare(self, body: bytes, model: Model) -> Upload:
        """The image in some bytes, prepared for the model; the caller holds one of the `slots`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._upload, body, model)

    def close(self) -> None:
        """End the thread; a later upload starts a new one."""
        self._thread.shutdown(cancel_futures=True)
        self._start()

    def _start(self) -> None:
        self._thread = ThreadPoolExecutor(1, "diptych-uploads")
        self.slots = asyncio.Semaphore(CONCURRENT)

    def _upload(self, body: bytes, model: Model) -> Upload:
        digest = hashlib.sha256(body).digest()
        key = (model.image_identity, digest)
        prepared: NDArray[Any] | Encodings | None = self._cached_image(model, digest)
        if prepared is None:
            prepared = self._prepared.get(key)
        if prepared is None:
            prepared = model.engine.preprocess(decode_upload(body, self._decode_size(model)))
            self._prepared.put(key, prepared)
        return Upload(digest, prepared)

    def _decode_size(self, model: Model) -> int | None:
        if model.image_identity not in self._sizes:
            self._sizes[model.image_identity] = photo_options(model.engine).decode_size
        return self._sizes[model.image_identity]


async def read_body(request: Request, limit: int, too_large: str) -> bytes:
    """The body of a request, up to a limit of bytes; they are counted, whatever the client declares."""
    parts: list[bytes] = []
    size = 0
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > DISCARD_FACTOR * limit:
        raise RequestError(413, too_large)
    stream = request.stream()
    deadline = time.monotonic() + TOTAL_SECONDS
    while size <= DISCARD_FACTOR * limit:
        try:
            part = await asyncio.wait_for(anext(stream), min(IDLE_SECONDS, deadline - time.monotonic()))
        except StopAsyncIteration:
            break
        except asyncio.TimeoutError:
            raise RequestError(408, "the body was not received in time; send it again") from None
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
    if size > limit:
        raise RequestError(413, too_large)
    return b"".join(parts)


async def read_image(request: Request) -> bytes:
    """The bytes of an image that is the body of a request, not decoded yet."""
    return not_empty(await read_body(request, MAX_BYTES, IMAGE_TOO_LARGE))


def not_empty(image: bytes) -> bytes:
    """The bytes of an image; a RequestError if there are none."""
    if not image:
        raise RequestError(422, "the image is empty; send the bytes of an image file")
    return image


def not_too_large(image: bytes) -> bytes:
    """The bytes of an image; a RequestError if they are too many."""
    if len(image) > MAX_BYTES:
        raise RequestError(413, IMAGE_TOO_LARGE)
    return image


def decode_upload(body: bytes, size: int | None = None) -> Image.Image:
    """An upright RGB photo from untrusted bytes, large enough for `size`; a RequestError if it is not an image."""
    try:
        return decode_bytes(body, "the file", size, MAX_PIXELS)
    except ImageError as reason:
        raise RequestError(415, str(reason)) from None
