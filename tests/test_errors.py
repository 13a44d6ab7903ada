import inspect
import re

import pytest

from diptych import errors
from diptych.errors import DiptychError, did_you_mean, location, one_line


def test_the_tree_in_the_docstring_is_the_real_one():
    drawn, ancestors = {}, []
    for line in errors.__doc__.splitlines():
        if match := re.match(r"    ([ │├└─]*)(\w+Error) +\S", line):
            depth = len(match[1]) // 4
            ancestors[depth:] = [match[2]]
            drawn[match[2]] = ancestors[depth - 1] if depth else "Exception"
    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, DiptychError)]
    assert drawn == {error.__name__: error.__base__.__name__ for error in classes}


def test_locations_are_those_of_compilers():
    assert location("captions.csv") == "captions.csv"
    assert location("captions.csv", 7) == "captions.csv:7"


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("tarin", ["val", "train"], "did you mean 'train'?"),
        ("x", ["val", "train"], "known: train, val"),
        ("x", {}, "known: "),
    ],
)
def test_a_mistyped_name_gets_a_suggestion(name, known, hint):
    assert did_you_mean(name, known) == hint


def test_an_exception_on_one_short_line():
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert one_line(ValueError("x" * 300), 20) == "ValueError: xxxxxxxx..."
