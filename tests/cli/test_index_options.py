import pytest

from diptych.cli.index_options import fresh_options, source_request
from diptych.errors import DiptychError


def test_patterns_are_named_forgotten_or_left_as_they_are():
    assert source_request(["a"], ["*.gif"], False, None).ignored == ("*.gif",)
    assert source_request(["a"], None, True, None).ignored == ()
    assert source_request(["a"], None, False, None).ignored is None
    with pytest.raises(DiptychError, match="name the patterns, or forget them"):
        source_request(["a"], ["*.gif"], True, None)


def test_a_command_that_continues_names_what_a_new_index_does_not_know():
    named = fresh_options("int8", "best", ["*.gif", "private/"], follow_links=True)
    assert named == " --storage int8 --quality best --ignore '*.gif' --ignore private/ --follow-links"
    assert fresh_options(None, None, None, follow_links=None) == ""
