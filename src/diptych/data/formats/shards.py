"""Shards: tar files in the layout of WebDataset, one or many, on this machine or in other storage (`s3://...`).

A folder with the index.json of `diptych data shard`, a pattern such as `shards/{000000..000999}.tar` or
`shards/*.tar`, or one tar file. `#val=PATTERN` names the shards of the val split.
"""

from __future__ import annotations

from diptych.data.address import Address
from diptych.data.corpus import Corpus
from diptych.data.shards.index import INDEX, read_index
from diptych.data.shards.names import is_remote
from diptych.data.shards.opening import open_shards

ORDER = 15
DESCRIPTION = "shards ({000000..000999}.tar, or a folder with their index.json)"


def recognises(address: Address) -> bool:
    """Names that end in .tar, and folders with an index of shards."""
    pattern = (address.text or str(address.path)).partition("#")[0]
    if pattern.endswith(".tar") or is_remote(pattern):
        return True
    folder = address.path.parent if address.path.name == INDEX else address.path
    return (folder / INDEX).is_file() and read_index(f"{folder}/") is not None


def read(address: Address) -> Corpus:
    """Read val and test, and what train consists of."""
    return open_shards(address)
