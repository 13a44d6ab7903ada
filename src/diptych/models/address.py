"""Where a run lies and what tells its model from others; no torch is needed to know it.

The package brings a model of its own under the name `starter`, for who has photos and has trained nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import diptych
from diptych.files import file_hash

NAME = "starter"


def run_folder(address: str | Path) -> Path:
    """The folder of a run: `starter` is the package's own, unless a run here is called so."""
    folder = Path(address)
    if str(address) == NAME and not (folder / "vocabulary.json").is_file():
        return Path(diptych.__file__).parent / NAME
    return folder


def run_identity(folder: Path) -> str:
    """What tells a run's best model from every other: a digest of its weights, settings and words."""
    parts = [file_hash(folder / "best" / "weights.safetensors"), file_hash(folder / "vocabulary.json")]
    return hashlib.sha256("\0".join(parts).encode("ascii")).hexdigest()
