"""`from diptych.objectives import ...`: the same names everywhere; test_registry.py shows that they load lazily."""

import ast
import sys
from pathlib import Path

import pytest

from diptych import objectives
from diptych.objectives.hinge import Hinge

SOURCE = ast.parse(Path(objectives.__file__).read_text(encoding="utf-8"))


def names_for_type_checkers():
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    return {alias.name: node.module for node in block.body for alias in node.names}


def test_every_name_can_be_had_and_comes_from_where_type_checkers_look():
    homes = names_for_type_checkers()
    assert sorted(homes) == sorted(objectives.__all__) == sorted(dir(objectives))
    for name, home in homes.items():
        value = getattr(objectives, name)
        assert value.__name__ == name
        assert value is getattr(sys.modules[home], name)
    assert objectives.Hinge is Hinge


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match=r"module 'diptych\.objectives' has no attribute 'Hing'"):
        _ = objectives.Hing
