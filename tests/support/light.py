"""A Python that has what `pip install diptych` brings and nothing else: in particular no torch."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]

_SHARED = ("..", "__pycache__")


def light_python(folder: Path) -> Path:
    """The interpreter of a new environment, whose packages are those of this one that the core dependencies need."""
    site = folder / "packages"
    site.mkdir(parents=True)
    for name in core_packages():
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - set(_SHARED):
            source = Path(str(distribution.locate_file(top)))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    venv.create(folder / "venv", symlinks=True)
    (purelib,) = (folder / "venv").glob("lib/python*/site-packages")
    (purelib / "core.pth").write_text(f"{site}\n")
    return folder / "venv" / "bin" / "python"


def core_packages() -> set[str]:
    """The core dependencies of pyproject.toml and what they need in turn."""
    waiting, found = (
        [Requirement(line) for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]],
        set(),
    )
    while waiting:
        wanted = waiting.pop()
        extras = [{"extra": extra} for extra in ("", *wanted.extras)]
        if wanted.marker is not None and not any(wanted.marker.evaluate(extra) for extra in extras):
            continue
        name = wanted.name.lower().replace("_", "-")
        if name not in found:
            found.add(name)
            waiting += [
                needed
                for needed in map(Requirement, metadata.distribution(name).requires or ())
                if needed.marker is None or any(needed.marker.evaluate(extra) for extra in extras)
            ]
    return found


def run_light(
    python: Path, *words: Any, source: Path | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program in the environment, with the package from a source folder if one is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = {} if source is None else {"PYTHONPATH": str(source)}
    command = [str(word) for word in (python, *words)]
    return subprocess.run(command, env=kept | path, capture_output=True, text=True, check=False, **options)
