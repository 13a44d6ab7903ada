"""Nothing is imported that was not allowed, and everything that goes wrong is one sentence."""

import sys

import pytest

from diptych import plugins
from diptych.errors import PluginError
from diptych.plugins import allow_code, installed, is_allowed, load_installed, load_reference, package_of

MARK = "import sys\nsys.modules.setdefault('was_imported_by_mistake', sys)\n"


def refusal(call, *arguments):
    with pytest.raises(PluginError) as raised:
        call(*arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    "reference",
    ["my_code:Thing", "my_pack.inner:Thing", "my_pack:Thing", "os:system", "my_cod:Thing", "my_code.inner:Thing"],
)
def test_a_module_that_was_not_allowed_is_not_imported(own_modules, reference):
    for name in ("my_code", "my_pack.__init__", "my_pack.inner"):
        own_modules.write(name, MARK)
    allow_code("my_pack.other", "my_codes")
    module = reference.partition(":")[0]
    before = set(sys.modules)
    assert refusal(load_reference, reference) == (
        f"the module {module!r} is not allowed; if you trust its code, add --allow-code {module}, "
        f'or call diptych.allow_code("{module}") in Python'
    )
    assert set(sys.modules) == before
    assert "was_imported_by_mistake" not in sys.modules


def test_an_allowed_module_is_imported_with_those_below_it(own_modules):
    own_modules.write("my_pack.__init__", "")
    own_modules.write("my_pack.inner", "class Thing: pass")
    allow_code("my_pack")
    assert load_reference("my_pack.inner:Thing").__name__ == "Thing"
    assert [is_allowed(name) for name in ("my_pack", "my_pack.inner.most", "my_packs", "my", "")] == [
        *(True, True, False, False, False)
    ]


@pytest.mark.parametrize(
    "reference",
    [
        *("", ":", "my_code:", ":Thing", "my_code:Thing:more", ".my_code:Thing", "my_code.:Thing", "my..code:Thing"),
        *("my code:Thing", "my_code:Thing()", "my_code:Outer.Thing", "../my_code:Thing", "my_code:Thing\n"),
        *("os;import sys:Thing", "1code:Thing", "my_code:__import__('os')", "file:///my_code:Thing", "my_code\0:Thing"),
    ],
)
def test_a_reference_with_other_characters_is_refused(own_modules, reference):
    own_modules.write("my_code", MARK)
    allow_code("my_code", "os")
    assert refusal(load_reference, reference).startswith("not a reference to a class; write module:Class")
    assert "was_imported_by_mistake" not in sys.modules


@pytest.mark.parametrize("module", ["", "my code", "my_code:Thing", "../x", ".x", "x.", "a-b", "*", sys, ["my_code"]])
def test_only_modules_can_be_allowed(own_modules, module):
    assert "not the name of a module" in refusal(allow_code, "good", module)
    assert not is_allowed("good")  # all or none


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0", "the module 'my_code' cannot be imported (ZeroDivisionError: division by zero)"),
        ("import no_such_package", "cannot be imported (ModuleNotFoundError: No module named 'no_such_package')"),
        ("def", "cannot be imported (SyntaxError: "),
        ("import sys; sys.exit('bye')", "cannot be imported (SystemExit: bye)"),
        ("raise ValueError('two\\nlines')", "cannot be imported (ValueError: two lines)"),
        ("thing = 1", "the module 'my_code' has no Thing"),
    ],
)
def test_a_module_that_does_not_work(own_modules, code, told):
    own_modules.write("my_code", code)
    allow_code("my_code", "no_such_module")
    assert told in refusal(load_reference, "my_code:Thing")
    assert "(ModuleNotFoundError: No module named 'no_such_module')" in refusal(load_reference, "no_such_module:Thing")


def test_an_entry_point_is_loaded_when_it_is_named(own_modules):
    own_modules.write("my_code", "class Thing: pass")
    own_modules.write("my_other", MARK)
    own_modules.register("objectives", "thing", "my_code:Thing")
    own_modules.register("objectives", "other", "my_other:Thing")
    own_modules.register("matchers", "third", "my_other:Thing")
    assert list(installed("objectives")) == ["other", "thing"]
    assert load_installed("objectives", "thing").__name__ == "Thing"
    assert "my_other" not in sys.modules
    assert package_of(installed("matchers")["third"][0]) == "an unknown package"


def test_an_entry_point_that_fails_names_itself(own_modules):
    own_modules.write("my_code", "1 / 0")
    own_modules.register("objectives", "thing", "my_code:Thing")
    told = refusal(load_installed, "objectives", "thing")
    assert told == "the plug-in 'thing' of an unknown package cannot be loaded (ZeroDivisionError: division by zero)"


def test_a_name_that_two_packages_register_is_refused(own_modules):
    for value in ("my_code:Thing", "my_code:Other"):
        own_modules.register("objectives", "thing", value)
    assert "both register the name 'thing'; uninstall one of them" in refusal(load_installed, "objectives", "thing")


def test_installed_packages_are_found_by_their_metadata(tmp_path, monkeypatch):
    folder = tmp_path / "thing-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.2\n")
    (folder / "entry_points.txt").write_text("[diptych.towers]\ntext.thing = no_such_module:Thing\n[other]\na = b:c\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins._entry_points.cache_clear()
    try:
        (point,) = installed("towers")["text.thing"]
        assert package_of(point) == "thing 1.2"
        assert installed("objectives").keys().isdisjoint({"a", "text.thing"})
    finally:
        plugins._entry_points.cache_clear()
