"""Where `diptych open` keeps its indexes: in the user's data folder, by the conventions of the platform.

A folder that it has indexed may be named instead of its index.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def data_folder() -> Path:
    """The folder for the data of programs, below the user's home."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "diptych"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "diptych"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "diptych"


def default_index(sources: Sequence[str]) -> Path:
    """The index of a source: named by the folder, and by a part of a hash of its path, as many have the same name."""
    from diptych.index.sources.open import source_name

    path = os.path.abspath(Path(sources[0]).expanduser())  # noqa: PTH100 (unlike Path, it resolves `..`)
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:6]
    return data_folder() / f"{source_name(sources[0])}-{digest}.diptych"


def index_of(target: str) -> str:
    """The index that a user names: itself, or a folder that `diptych open` has indexed."""
    if not Path(target).is_dir():
        return target
    index = default_index([target])
    return str(index) if index.exists() else target
