"""Formats of installed packages: a broken one is named, and the others still work."""

import pytest

from diptych.data import formats, plugin_formats
from diptych.data.open import open_corpus
from diptych.data.plugin_formats import PluginFormat
from diptych.errors import DataError, PluginError
from diptych.plugins import PluginWarning

FORMAT = """
from diptych.data.formats import scenes

ORDER = 5
DESCRIPTION = "files that end in .mine"


def recognises(address):
    return address.path.suffix == ".mine"


def read(address):
    return scenes.make_scenes(train=2, val=1, test=1)
"""


@pytest.fixture(autouse=True)
def asked_anew():
    formats.all_formats.cache_clear()
    yield
    formats.all_formats.cache_clear()


def test_a_format_of_an_installed_package_is_asked_in_its_order(own_modules, tmp_path):
    own_modules.write("my_format", FORMAT)
    own_modules.register("formats", "mine", "my_format")
    assert [data_format.ORDER for data_format in formats.all_formats()][:2] == [0, 5]
    assert len(open_corpus(tmp_path / "x.mine").image_ids) == 4
    (tmp_path / "x.yours").touch()
    with pytest.raises(DataError, match=r"known formats: .*, files that end in \.mine, "):
        open_corpus(tmp_path / "x.yours")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0", "the plug-in 'mine' of an unknown package cannot be loaded (ZeroDivisionError: division by zero)"),
        ("ORDER = 5", "the plug-in 'mine' is not a format: it needs ORDER, DESCRIPTION, recognises and read"),
        (FORMAT.replace("ORDER = 5", "ORDER = 'first'"), "the plug-in 'mine' is not a format"),
    ],
)
def test_a_format_that_cannot_be_loaded_is_left_out_with_a_warning(own_modules, code, told):
    own_modules.write("my_format", code)
    own_modules.register("formats", "mine", "my_format")
    with pytest.warns(PluginWarning) as warned:
        assert len(open_corpus("scenes:train=3,val=1,test=1").image_ids) == 5
    (message,) = [str(one.message) for one in warned]
    assert told in message
    assert message.endswith("; it is left out")
    with pytest.raises(PluginError):
        PluginFormat.load("mine")


def test_a_format_that_fails_to_recognise_is_left_out_with_a_warning(own_modules, tmp_path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,a dog\n")
    own_modules.write("my_format", FORMAT.replace("return address.path.suffix", "return address.no_such"))
    own_modules.register("formats", "mine", "my_format")
    with pytest.warns(PluginWarning, match="the format plug-in 'mine' failed .AttributeError.*it is left out"):
        assert open_corpus(tmp_path / "captions.csv").texts == ("a dog",)


def test_a_format_that_fails_to_read_is_an_error_that_names_it(own_modules, tmp_path):
    own_modules.write("my_format", FORMAT.replace("return scenes", "raise KeyError('x'); return scenes"))
    own_modules.register("formats", "mine", "my_format")
    with pytest.raises(DataError) as raised:
        open_corpus(tmp_path / "x.mine")
    assert str(raised.value) == f"{tmp_path / 'x.mine'}: the format plug-in 'mine' failed (KeyError: 'x')"


def test_an_error_about_the_data_is_the_formats_own(own_modules, tmp_path):
    raising = "from diptych.errors import DataError; raise DataError('x.mine:3: no image'); return scenes"
    own_modules.write("my_format", FORMAT.replace("return scenes", raising))
    own_modules.register("formats", "mine", "my_format")
    with pytest.raises(DataError, match=r"^x\.mine:3: no image$"):
        open_corpus(tmp_path / "x.mine")


def test_without_packages_there_are_no_more_formats(own_modules):
    assert plugin_formats.plugin_formats() == []
