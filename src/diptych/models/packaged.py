"""Parts of a matcher whose weights come with an installed package: a run notes their digest instead of storing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from torch import nn

from diptych.models.package_weights import PackageWeights


class PackagedModule(nn.Module, ABC):
    """A part whose weights are those of a package and never change.

    They are buffers that are not in `state_dict`, so neither snapshots nor runs contain them.
    """

    @property
    @abstractmethod
    def package_weights(self) -> PackageWeights:
        """Where the weights come from."""


def packaged_header(module: nn.Module) -> dict[str, dict[str, str]]:
    """The package weights of each packaged part of a module, by the part's name, for a file's header."""
    return {name: part.package_weights._asdict() for name, part in _packaged_parts(module)}


def check_packaged(module: nn.Module, header: Any, path: Path) -> None:
    """Refuse a file whose header notes other package weights than those that its module has read."""
    noted = header if isinstance(header, dict) else {}
    for name, part in _packaged_parts(module):
        wanted = noted.get(name) or {}
        part.package_weights.check(wanted.get("digest"), wanted.get("version"), path)


def _packaged_parts(module: nn.Module) -> list[tuple[str, PackagedModule]]:
    return [(name, part) for name, part in module.named_modules() if isinstance(part, PackagedModule)]
