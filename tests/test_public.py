"""What the package offers: `__all__`, `dir()`, what type checkers see and the reference name the same things."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import diptych
import diptych.objectives

ROOT = Path(__file__).parent.parent
PACKAGES = {"diptych": diptych, "diptych.objectives": diptych.objectives}


def names_for_type_checkers(package):
    """The names that a package imports under `if TYPE_CHECKING:`, and the module of each."""
    for node in ast.parse(Path(package.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            imports = [statement for statement in node.body if isinstance(statement, ast.ImportFrom)]
            return {alias.asname or alias.name: statement.module for statement in imports for alias in statement.names}
    raise AssertionError("no block for type checkers")


def test_the_names_of_the_package_agree():
    typed = names_for_type_checkers(diptych)
    assert typed == diptych._HOMES
    assert sorted(diptych.__all__) == sorted([*typed, "__version__"])
    assert dir(diptych) == sorted([*diptych.__all__, "objectives"])


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_every_public_name_can_be_imported_and_has_a_docstring(package):
    assert list(package.__all__) == sorted(package.__all__, key=lambda name: (not name.isupper(), name))
    for name in set(package.__all__) - {"__version__"}:
        assert getattr(package, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'diptych' has no attribute 'trian'"):
        _ = diptych.trian
    with pytest.raises(ImportError):
        importlib.import_module("diptych.trian")


def test_importing_the_package_imports_no_torch():
    program = "import sys, diptych; dir(diptych); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_objectives_need_no_import_of_their_own():
    program = "import diptych; diptych.objectives.Hinge"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_reference_describes_every_public_name_and_nothing_else():
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    described = [name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M)]
    public = {f"{package}.{name}" for package, module in PACKAGES.items() for name in module.__all__}
    assert sorted(described) == sorted(public - {"diptych.__version__"})


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_docstrings_refer_to_nothing_that_the_reference_lacks(package):
    for name in set(package.__all__) - {"__version__"}:
        assert "module docstring" not in getattr(package, name).__doc__, name


def test_the_error_tree_is_public():
    errors = importlib.import_module("diptych.errors")
    tree = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert tree <= set(diptych.__all__)
