"""An encoded query, and the cursor that continues its answer where a page has ended."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import struct
from dataclasses import dataclass, replace

from diptych.errors import DataError
from diptych.index.entries import Kind, SearchRequest
from diptych.models.engines.engine import Encodings

_CURSOR = struct.Struct(">B8sIQf")
_VERSION = 1
_WRONG = "cursor: not one that this search gave as next; leave it out to begin with the best hits"


@dataclass(frozen=True)
class Query:
    """An encoded query: one row, what it encodes, what to search for, and its text, if it is one.

    A text that is searched for by its words alone needs no encoding. `picture` is a digest of the picture, if it is one
    from outside of the index. `asked` is the digest of the search before the searcher has completed its request.
    """

    encoding: Encodings | None
    kind: Kind
    request: SearchRequest
    text: str | None = None
    picture: bytes | None = None
    asked: bytes | None = None

    @property
    def digest(self) -> bytes:
        """Identifies the search, whatever its page; it does not depend on how the encoding is rounded."""
        if self.asked is not None:
            return self.asked
        request = replace(self.request, k=1, cursor=None)
        return hashlib.blake2b(repr((self.kind, self.text, self.picture, request)).encode(), digest_size=8).digest()

    def cursor(self) -> Cursor | None:
        """The cursor of the request; a DataError if it belongs to another search."""
        if not self.request.cursor:
            return None
        cursor = Cursor.parse(self.request.cursor)
        if cursor.search != self.digest:
            raise DataError(_WRONG)
        return cursor


@dataclass(frozen=True)
class Cursor:
    """The last hit of a page: its id and score, and its place among the candidates, counted from one.

    If the index changes, the hit is found by its id, and an entry that was removed or changed by its score.
    """

    search: bytes
    place: int
    id: int
    score: float

    def __str__(self) -> str:
        packed = _CURSOR.pack(_VERSION, self.search, self.place, self.id, self.score)
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @staticmethod
    def parse(text: str) -> Cursor:
        """A cursor from its string; a DataError if it is none."""
        try:
            packed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
            version, search, place, id, score = _CURSOR.unpack(packed)
        except (UnicodeEncodeError, binascii.Error, struct.error):
            raise DataError(_WRONG) from None
        if version != _VERSION or place < 1 or not math.isfinite(score):
            raise DataError(_WRONG)
        return Cursor(search, place, id, score)
