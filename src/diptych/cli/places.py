"""Where `diptych open` keeps its indexes: in the user's data folder, by the conventions of the platform."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from diptych.index.sources.open import source_name


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
    path = str(Path(sources[0]).expanduser().absolute())
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:6]
    return data_folder() / f"{source_name(sources[0])}-{digest}.diptych"
