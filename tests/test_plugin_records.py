import hashlib
from importlib import import_module

from diptych import plugin_records
from diptych.objectives.hinge import Hinge
from diptych.plugin_records import PluginRecord, changed_since, record_classes, settings_classes, source_file
from diptych.training.recipe import Stage
from support.plugins import LOSS


def test_a_record_names_module_class_and_source(own_modules):
    file = own_modules.write("my_losses", LOSS)
    kind = import_module("my_losses").Exponential
    (record,) = record_classes([kind, kind, Hinge, int])
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert record == PluginRecord("my_losses", "Exponential", sha256=digest)
    assert record.to_json() == {
        "module": "my_losses",
        "class": "Exponential",
        "package": "",
        "version": "",
        "sha256": digest,
    }
    assert source_file("my_losses") == file
    file.write_text("edited = True")  # what was imported is what is recorded
    assert record_classes([kind]) == (record,)


def test_base_classes_outside_of_the_package_are_recorded(own_modules):
    own_modules.write("my_losses", LOSS)
    own_modules.write("my_more", "from my_losses import Exponential\nclass Steeper(Exponential): scale: float = 9.0")
    found = record_classes([import_module("my_more").Steeper])
    assert [(record.module, record.name) for record in found] == [("my_losses", "Exponential"), ("my_more", "Steeper")]


def test_an_installed_package_has_a_version(own_modules, monkeypatch):
    own_modules.write("my_losses", LOSS)
    monkeypatch.setattr(plugin_records, "packages_distributions", lambda: {"my_losses": ["my-losses"]})
    monkeypatch.setattr(plugin_records, "version", lambda package: {"my-losses": "2.1"}[package])
    (record,) = record_classes([import_module("my_losses").Exponential])
    assert (record.package, record.version) == ("my-losses", "2.1")


def test_settings_within_settings_are_found(own_modules):
    own_modules.write("my_losses", LOSS)
    kind = import_module("my_losses").Exponential
    assert kind in settings_classes(Stage(objective=kind()))


def test_a_change_names_the_class_and_the_file(own_modules):
    file = own_modules.write("my_losses", LOSS)
    now = record_classes([import_module("my_losses").Exponential])
    saved = [record.to_json() for record in now]
    assert changed_since(saved, now) == []
    assert changed_since([{**saved[0], "sha256": "0"}], now) == [f"my_losses:Exponential has changed since ({file})"]
    for nothing in (None, [], [3], {"module": "my_losses"}, [{"module": "os", "class": "system", "sha256": "0"}]):
        assert changed_since(nothing, now) == []
