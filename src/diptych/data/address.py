"""The address of a corpus: `path`, `path#option`, or the name of a built-in corpus with its settings."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from diptych.errors import DataError


@dataclass(frozen=True)
class Address:
    """A path, and what follows a # behind it, if anything; `text` is the address as the user wrote it.

    The option is the folder of the images, if they are not where the format expects them. A format may give it another
    meaning: for precomputed features it is the part to test on.
    """

    path: Path
    option: str | None = None
    text: str = ""

    @classmethod
    def parse(cls, address: str | Path) -> Address:
        """Read an address; a path that exists is never cut at a # in its name."""
        # A Path is never the name of a built-in corpus: a folder called scenes is "./scenes".
        text = address if isinstance(address, str) else os.path.join(".", address)  # noqa: PTH118
        path = _expand_home(Path(address))
        folder, mark, option = str(path).rpartition("#")
        if mark and option and not path.exists() and Path(folder).exists():
            return cls(Path(folder), option, text)
        return cls(path, None, text)

    def images(self) -> Path | None:
        """The folder of the images that the option names, if there is one; it must exist."""
        if self.option is None:
            return None
        images = _expand_home(Path(self.option)).absolute()
        if not images.is_dir():
            raise DataError(f"{images}: no such folder of images")
        return images

    def absolute(self) -> str:
        """The address with absolute paths, which means the same from every working folder."""
        images = self.images()
        return str(self.path.absolute()) if images is None else f"{self.path.absolute()}#{images}"


def _expand_home(path: Path) -> Path:
    with contextlib.suppress(RuntimeError):  # ~somebody who has no home is a name like any other
        return path.expanduser()
    return path
