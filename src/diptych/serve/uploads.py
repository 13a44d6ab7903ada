"""Bodies of requests, read up to a limit: whoever sends more is told so, and nothing of it is kept."""

from __future__ import annotations

from PIL import Image
from starlette.requests import Request

from diptych.data.images import decode_bytes
from diptych.errors import ImageError
from diptych.serve.errors import RefusedError

BYTES = 20 * 2**20
PIXELS = 50_000_000
PATIENCE = 5  # times the limit: so much is read and dropped, because a browser shows no answer while it sends


async def read_body(request: Request, limit: int, too_large: str) -> bytes:
    """The whole body, if it is within the limit of bytes; it is counted, whatever the client says of it."""
    parts: list[bytes] = []
    size = 0
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > PATIENCE * limit:
        raise RefusedError(413, too_large)
    async for part in request.stream():
        size += len(part)
        if size > PATIENCE * limit:
            break
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


def decode_upload(body: bytes) -> Image.Image:
    """An upright RGB photo of bytes from anywhere, or a refusal."""
    try:
        return decode_bytes(body, "the image", limit=PIXELS)
    except ImageError as reason:
        raise RefusedError(415, str(reason)) from None
