"""The examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

import diptych

SOURCE = Path(diptych.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(["diptych", *file.relative_to(SOURCE).with_suffix("").parts])
    for file in SOURCE.rglob("*.py")
    if ">>>" in file.read_text()
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
