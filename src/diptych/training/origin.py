"""data.json: which data a run was trained on, so that it can be evaluated on it without naming it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.errors import DataError, RunError
from diptych.files import read_json, write_text

_FORMAT = "diptych data"
_VERSION = 1


@dataclass(frozen=True)
class Origin:
    """The address of a corpus (None for one made in Python), and the digest of its content."""

    address: str | None
    digest: str

    def save(self, run: Path) -> None:
        """Write it into a run's folder."""
        content = {"format": _FORMAT, "version": _VERSION, "address": self.address, "digest": self.digest}
        # In ASCII: a path that is not valid UTF-8 contains lone surrogates, which could not be written otherwise.
        write_text(_file(run), json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, run: Path) -> Origin:
        """Read what a run was trained on; RunError if the run does not say."""
        if not _file(run).is_file() and not (run / "recipe.toml").is_file():
            raise RunError(f"{run}: no such run; name folders that `diptych train` made, and the data with --data")
        if not _file(run).is_file():
            raise RunError(f"{run}: does not say what it was trained on (it has no data.json); name it with --data")
        content = read_json(_file(run), RunError)
        if isinstance(content, dict) and (content.get("format"), content.get("version")) == (_FORMAT, _VERSION):
            address, digest = content.get("address"), content.get("digest")
            if isinstance(address, str | None) and isinstance(digest, str):
                return cls(address, digest)
        raise RunError(f"{_file(run)}: not a file that training has written; name the data with --data")


def _file(run: Path) -> Path:
    return run / "data.json"


def open_origin(runs: Sequence[Path]) -> tuple[Corpus, list[str]]:
    """The corpus that these runs were trained on, and a warning for each run that was trained on other content."""
    origins = [Origin.read(run) for run in runs]
    first = origins[0]
    for run, origin in zip(runs, origins, strict=True):
        if origin.address is None:
            raise RunError(f"{run}: was trained on a corpus made in Python, which has no address; name it with --data")
        if origin.address != first.address and origin.digest != first.digest:
            raise RunError(
                f"{runs[0]} was trained on {first.address}, {run} on {origin.address}; "
                "name the data to compare them on with --data"
            )
    try:
        corpus = open_corpus(str(first.address))
    except DataError as reason:
        why = str(reason).partition(";")[0]
        raise RunError(f"{runs[0]}: its training data cannot be opened ({why}); name the data with --data") from None
    digest = corpus.digest()
    changed = [run for run, origin in zip(runs, origins, strict=True) if origin.digest != digest]
    return corpus, [f"{first.address}: has changed since {run} was trained on it" for run in changed]
