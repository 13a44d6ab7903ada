"""For the reference: classes with settings are shown with the call that makes them, as dataclasses are."""

from __future__ import annotations

from typing import Any

import griffe


class SettingsSignatures(griffe.Extension):
    """Gives each subclass of Settings an `__init__` with its fields, by keyword only, and their defaults."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Visit all classes of the package once it is loaded."""
        for module in _modules(pkg):
            for found in module.classes.values():
                if not found.is_alias and any(base.name == "Settings" for base in found.mro()):
                    _set_init(found)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    inner = [each for each in module.modules.values() if not each.is_alias]
    return [module, *(found for each in inner for found in _modules(each))]


def _set_init(settings: griffe.Class) -> None:
    fields: dict[str, griffe.Parameter] = {}
    for owner in (*reversed(settings.mro()), settings):
        for name, member in owner.attributes.items():
            if "instance-attribute" in member.labels and member.annotation is not None and name != "name":
                fields[name] = griffe.Parameter(name, kind=griffe.ParameterKind.keyword_only, default=member.value)
    init = griffe.Function(
        "__init__",
        parent=settings,
        parameters=griffe.Parameters(
            griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword), *fields.values()
        ),
    )
    settings.set_member("__init__", init)
