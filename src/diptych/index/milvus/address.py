"""The address of an index in Milvus: milvus://HOST[:PORT]/COLLECTION, and the options that follow a question mark.

What a new index is made with (`index`, `shards`, `replicas`, `thumbnails`) is remembered by it and need not be named
again; `consistency`, `database` and `secure` say how it is reached. A user name and password, or a token, come from the
environment variable MILVUS_TOKEN (`user:password`), so that they are never part of an address that is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, urlsplit

from diptych.errors import did_you_mean

PORT = 19530

IndexType = Literal["FLAT", "IVF_FLAT", "IVF_SQ8", "HNSW"]
Consistency = Literal["Strong", "Session", "Bounded", "Eventually"]
Options: TypeAlias = Mapping[str, str]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_RESERVED = re.compile(r"__(new|\d+)$")
_OPTIONS = ("index", "shards", "replicas", "thumbnails", "consistency", "database", "secure")
_FORM = "write milvus://HOST:19530/COLLECTION"
_MOST = {"shards": 16, "replicas": 64}


@dataclass(frozen=True)
class MilvusAddress:
    """A parsed address; `text` is the address as it was written."""

    text: str
    host: str
    port: int
    collection: str
    index: IndexType = "HNSW"
    shards: int = 1
    replicas: int = 1
    thumbnails: str | None = None
    consistency: Consistency = "Bounded"
    database: str = ""
    secure: bool = False

    @property
    def uri(self) -> str:
        """The address of the server, for its client."""
        return f"{'https' if self.secure else 'http'}://{self.server}"

    @property
    def server(self) -> str:
        """Host and port."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> MilvusAddress:
        """An address from its text; a ValueError says what is wrong."""
        parts = urlsplit(text)
        if parts.username is not None or parts.password is not None:
            raise ValueError("name the user in the environment variable MILVUS_TOKEN=user:password, not in the address")
        host, collection = parts.hostname, parts.path.strip("/")
        if not host or not collection:
            raise ValueError(_FORM)
        if not _NAME.fullmatch(collection):
            raise ValueError(f"{collection!r} cannot be the name of a collection: use letters, digits and underscores")
        if _RESERVED.search(collection):
            raise ValueError(f"{collection!r}: names that end in __new or __NUMBER are those of parts of an index")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        for name in options.keys() - {*_OPTIONS}:
            raise ValueError(f"no option {name!r}; {did_you_mean(name, _OPTIONS)}")
        return cls(
            text,
            host,
            parts.port or PORT,
            collection,
            _choice(options, "index", get_args(IndexType), "HNSW"),
            _count(options, "shards"),
            _count(options, "replicas"),
            options.get("thumbnails") or None,
            _choice(options, "consistency", get_args(Consistency), "Bounded"),
            options.get("database", ""),
            _choice(options, "secure", ("true", "false"), "false") == "true",
        )


def _choice(options: Options, name: str, known: tuple[str, ...], default: str) -> Any:
    value = options.get(name, default)
    same = [choice for choice in known if choice.lower() == value.lower()]
    if not same:
        raise ValueError(f"{name}={value}: choose one of {', '.join(known)}")
    return same[0]


def _count(options: Options, name: str) -> int:
    value = options.get(name, "1")
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= _MOST[name]):
        raise ValueError(f"{name}={value}: a number from 1 to {_MOST[name]}")
    return int(value)
