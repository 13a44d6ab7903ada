"""Bodies of requests, read up to a limit: whoever sends more is told so, and nothing of it is kept."""

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
from diptych.index.encoder import Encoder, Encodings
from diptych.index.opened import decoded_for
from diptych.serve.cache import Cache
from diptych.serve.errors import RefusedError
from diptych.serve.queries import Upload

BYTES = 20 * 2**20
PIXELS = 50_000_000
PATIENCE = 5  # times the limit: so much is read and dropped, because a browser shows no answer while it sends
QUIET = 30.0  # seconds in which nothing of a body comes
LONGEST = 300.0  # seconds that a body may take in all
AT_ONCE = 4  # images that are read or wait to be decoded; the next are read when one of them is done
RECENT = 4  # images that stay prepared: the page sends one for images and, at the same time, for texts


class Uploads:
    """Makes uploads of bodies: a few are held in memory at a time, and one is decoded, on a thread of its own.

    `encoded` is asked what the model has made already of an image with some hash, which is then not decoded.
    """

    def __init__(self, encoded: Callable[[Encoder, bytes], Encodings | None]) -> None:
        self._encoded = encoded
        self._recent: Cache[tuple[str, bytes], NDArray[Any]] = Cache(RECENT)
        self._sizes: dict[str, int | None] = {}
        self._begin()

    async def read(self, request: Request, encoder: Encoder) -> Upload:
        """The image in a body, as the model reads it."""
        async with self._room:
            body = await read_image(request)
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._upload, body, encoder)

    def close(self) -> None:
        """End the thread; whoever sends an image again begins a new one."""
        self._thread.shutdown(cancel_futures=True)
        self._begin()

    def _begin(self) -> None:
        self._thread = ThreadPoolExecutor(1, "diptych-uploads")
        self._room = asyncio.Semaphore(AT_ONCE)

    def _upload(self, body: bytes, encoder: Encoder) -> Upload:
        digest = hashlib.sha256(body).digest()
        key = (encoder.identity, digest)
        read: NDArray[Any] | Encodings | None = self._encoded(encoder, digest)
        if read is None:
            read = self._recent.get(key)
        if read is None:
            read = encoder.prepare(decode_upload(body, self._decoded_for(encoder)))
            self._recent.put(key, read)
        return Upload(digest, read)

    def _decoded_for(self, encoder: Encoder) -> int | None:
        if encoder.identity not in self._sizes:
            self._sizes[encoder.identity] = decoded_for(encoder)
        return self._sizes[encoder.identity]


async def read_body(request: Request, limit: int, too_large: str) -> bytes:
    """The whole body, if it is within the limit of bytes; it is counted, whatever the client says of it."""
    parts: list[bytes] = []
    size = 0
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > PATIENCE * limit:
        raise RefusedError(413, too_large)
    stream = request.stream()
    end = time.monotonic() + LONGEST
    while size <= PATIENCE * limit:
        try:
            part = await asyncio.wait_for(anext(stream), min(QUIET, end - time.monotonic()))
        except StopAsyncIteration:
            break
        except asyncio.TimeoutError:
            raise RefusedError(408, "the body did not come in time; send it again") from None
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
    if size > limit:
        raise RefusedError(413, too_large)
    return b"".join(parts)


async def read_image(request: Request) -> bytes:
    """The bytes of an uploaded image, not looked at yet."""
    body = await read_body(request, BYTES, f"the image has more than {BYTES >> 20} MB; send a smaller one")
    if not body:
        raise RefusedError(422, "the body is empty; send the bytes of an image as the body")
    return body


def decode_upload(body: bytes, size: int | None = None) -> Image.Image:
    """An upright RGB photo of bytes from anywhere, large enough for `size`, or a refusal."""
    try:
        return decode_bytes(body, "the image", size, PIXELS)
    except ImageError as reason:
        raise RefusedError(415, str(reason)) from None
