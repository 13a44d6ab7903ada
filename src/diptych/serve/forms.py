"""Forms with files (multipart/form-data, RFC 7578), read up to a limit into memory; nothing is written to disk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from pydantic import BaseModel
from starlette.requests import Request

from diptych.serve.errors import RequestError
from diptych.serve.reading import declared_type, read_options, read_parameters
from diptych.serve.uploads import IMAGE_TOO_LARGE, MAX_BYTES, not_empty, read_body, read_image

Model = TypeVar("Model", bound=BaseModel)

IMAGE_FIELDS = ("file", "image")
OTHER_BYTES = 2**18  # of the fields of a form, without its files
MAX_PARTS = 128  # fields and files
MAX_HEADERS = 2**13  # bytes of the headers of a part

_PARAMETER = re.compile(r';\s*([^=;\s"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*))', re.DOTALL)
_DISPOSITION = re.compile(rb"^content-disposition:\s*form-data\s*(;.*)$", re.IGNORECASE | re.MULTILINE)
_DAMAGED = "the form is damaged or incomplete; send it as multipart/form-data"


class Form(NamedTuple):
    """The fields and the files of a form, each with its name, in order."""

    fields: list[tuple[str, str]]
    files: list[tuple[str, bytes]]


def has_form(request: Request) -> bool:
    """Whether the body of a request is declared to be a form with files."""
    return declared_type(request) == "multipart/form-data"


async def read_upload(request: Request, model: type[Model]) -> tuple[Model, bytes]:
    """The options of a request with an image, and the bytes of the image.

    The image is the body, with the options in the URL, or the one file of a form, whose other fields are options too.
    """
    if not has_form(request):
        return read_parameters(request, model), await read_image(request)
    form = await read_form(request, IMAGE_FIELDS, MAX_BYTES, IMAGE_TOO_LARGE)
    options = read_options([*request.query_params.multi_items(), *form.fields], model)
    if len(form.files) != 1:
        raise RequestError(422, f"the form has {len(form.files)} images; send one file, as {' or '.join(IMAGE_FIELDS)}")
    return options, not_empty(form.files[0][1])


async def read_form(request: Request, file_names: Iterable[str], limit: int, too_large: str) -> Form:
    """The form in the body of a request, whose files have up to `limit` bytes together.

    A part is a file if it has the name of one in `file_names`, whether its sender names the file or not.
    """
    body = await read_body(request, limit + OTHER_BYTES, too_large)
    form = await asyncio.to_thread(parse_form, request.headers["content-type"], body, frozenset(file_names))
    if sum(len(content) for _, content in form.files) > limit:
        raise RequestError(413, too_large)
    return form


def parse_form(content_type: str, body: bytes, file_names: frozenset[str]) -> Form:
    """The parts of a form; a RequestError if it is damaged, or has a file in a field that takes none."""
    form = Form([], [])
    for parameters, content in _parts(content_type, body):
        name = parameters.get("name")
        if name is None:
            raise RequestError(422, _DAMAGED)
        if name in file_names:
            form.files.append((name, content))
        elif "filename" in parameters:
            raise RequestError(422, f"{name[:100]}: takes no file; send the file as {' or '.join(sorted(file_names))}")
        else:
            try:
                form.fields.append((name, content.decode()))
            except UnicodeDecodeError:
                raise RequestError(422, f"{name[:100]}: not UTF-8") from None
    return form


def _parts(content_type: str, body: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """The parameters of the Content-Disposition of each part, and its content."""
    boundary = _parameters(content_type).get("boundary", "").encode("latin-1", "replace")
    if not 0 < len(boundary) <= 70:
        raise RequestError(422, _DAMAGED)
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MAX_PARTS + 1)
    if len(parts) > MAX_PARTS:
        raise RequestError(413, f"the form has more than {MAX_PARTS - 1} fields; send fewer")
    if not parts or not parts.pop().startswith(b"--"):
        raise RequestError(422, _DAMAGED)
    for part in parts:
        head, end, content = part.partition(b"\r\n\r\n")
        found = _DISPOSITION.search(head.replace(b"\r\n", b"\n")) if end and len(head) <= MAX_HEADERS else None
        if found is None:
            raise RequestError(422, _DAMAGED)
        yield _parameters(found[1].decode("utf-8", "replace")), content


def _parameters(header: str) -> dict[str, str]:
    """The parameters of a header by their names."""
    return {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(header)}
