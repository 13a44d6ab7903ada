"""Every module with behaviour has a test file of the same name, in the same folder."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src/diptych"

EXCEPTIONS = {
    "__init__.py": "the lazy public names are tested by test_rooms.py",
    "model.py": "tested by model/, one file per idea",
    "data/formats/__init__.py": "tested by data/formats/test_formats.py",
    "objectives/__init__.py": "tested by objectives/test_public_names.py",
}


def has_behaviour(module):
    """Whether a module has a function with a body; interfaces, dataclasses and constants have none."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return not all(is_stub(statement) for function in functions for statement in function.body)


def is_stub(statement):
    """Whether a statement is a docstring, `...`, `pass` or `raise`."""
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass | ast.Raise)


def test_every_module_with_behaviour_has_its_test_file():
    modules = [path for path in sorted(SOURCES.rglob("*.py")) if has_behaviour(ast.parse(path.read_text()))]
    assert len(modules) > 100
    untested = {
        path.relative_to(SOURCES).as_posix()
        for path in modules
        if not (TESTS / path.relative_to(SOURCES)).with_name(f"test_{path.name}").exists()
    }
    assert untested == EXCEPTIONS.keys()


def test_exceptions_name_modules_that_exist():
    assert all((SOURCES / path).exists() for path in EXCEPTIONS)
