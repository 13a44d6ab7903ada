"""Benchmarks are not run by the tests, but whatever they import must exist."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FILES = sorted(BENCHMARKS.rglob("*.py"))


def imported_names(source: str) -> Iterator[tuple[str, str | None]]:
    """Each module that a file imports, also within functions, with the name that is taken from it, if any."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)


def top_level_names(file: Path) -> set[str]:
    """The functions, classes and variables that a benchmark defines, without running it."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {target.id for target in ast.walk(node) if isinstance(target, ast.Name)}
    return names


def exists(module: str, name: str | None) -> bool:
    """Whether a benchmark can import a name, from another benchmark or from an installed module."""
    sibling = BENCHMARKS.joinpath(*module.split(".")).with_suffix(".py")
    if sibling.is_file():
        return name is None or name in top_level_names(sibling)
    try:
        imported = import_module(module)
        if name is not None and not hasattr(imported, name):
            import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_imports_of_benchmarks_exist(file: Path) -> None:
    imports = list(imported_names(file.read_text(encoding="utf-8")))
    assert imports
    missing = [f"{module}: {name}" for module, name in imports if not exists(module, name)]
    assert not missing


def test_missing_imports_are_found() -> None:
    source = "def run():\n    from diptych.model import Missing\nfrom harness import missing\nimport diptych.missing"
    assert not any(exists(*wanted) for wanted in imported_names(source))
    assert exists("harness", "finish")
    assert exists("diptych.index", "ivf")
