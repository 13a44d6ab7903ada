"""The model that comes with the package, under the name `starter`, for who has photos and has trained nothing."""

from __future__ import annotations

from pathlib import Path

import diptych

NAME = "starter"


def run_folder(address: str | Path) -> Path:
    """The folder of a run: `starter` is the package's own, unless a folder is called so."""
    folder = Path(address)
    if str(address) == NAME and not folder.is_dir():
        return Path(diptych.__file__).parent / NAME
    return folder
