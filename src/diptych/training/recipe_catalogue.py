"""The recipes that come with the package, one folder per paper.

A folder holds `paper.toml` (title, reference, what it is about) and files of recipes:

    title = "Table 4: ten crops through VGG19"
    [shared]                          # what the recipes of this file have in common, laid over their base
    base = "vsepp"
    [recipe.vsepp-10c-rv-vgg19]       # the header is the recipe's name
    paper.row = [{ number = "4.4", ... }]
    model.image.crops = "10C"         # where it differs; stages are counted from 1: stage.1.epochs = 3

A file with a `[profile]` also defines a profile for the folder's recipes, named after the file (`recipe_profiles`).
`NAME-small` is the recipe NAME with the profile of `small.toml`, unless a recipe of that name is defined.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, ValidationError

from diptych.errors import RecipeError
from diptych.settings import Settings, first_error
from diptych.training.recipe_layers import lay_over
from diptych.training.recipe_profiles import Profile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

File = TypeVar("File", bound=Settings)


class RecipeFile(Settings):
    """A file of recipes; its title is the heading under which they are listed."""

    title: str
    shared: dict[str, Any] = Field(default_factory=dict)
    recipe: dict[str, dict[str, Any]] = Field(default_factory=dict)
    profile: Profile | None = None


class PaperFile(Settings):
    """A folder's `paper.toml`; the reference is that of its recipes, unless they name another."""

    title: str
    about: str
    start: tuple[str, ...]
    reference: str | None = None


@dataclass(frozen=True)
class Definition:
    """A recipe as its file defines it, not yet laid over its base."""

    name: str
    file: str
    content: Mapping[str, Any]
    profile: Profile | None = None


@dataclass(frozen=True)
class RecipePaper:
    """A folder of recipes: what it is about, where to start, its recipes by the titles of their files, its profiles."""

    name: str
    title: str
    about: str
    start: tuple[str, ...]
    reference: str | None
    groups: Mapping[str, tuple[str, ...]]
    profiles: Mapping[str, Profile]


@dataclass(frozen=True)
class Catalogue:
    """All packaged recipes: the papers by the names of their folders, and the definitions by name."""

    papers: Mapping[str, RecipePaper]
    definitions: Mapping[str, Definition]

    def find(self, name: str) -> Definition | None:
        """The definition behind a name, with the profile that the name ends with, if any."""
        if name in self.definitions:
            return self.definitions[name]
        stem, _, suffix = name.rpartition("-")
        if stem not in self.definitions or suffix not in self.profiles_of(stem):
            return None
        return replace(self.definitions[stem], profile=self.profiles_of(stem)[suffix])

    def suggest(self, name: str) -> str:
        """The nearest names for one that is unknown."""
        close = get_close_matches(name, self.all_names(), n=3, cutoff=0.5)
        return f"did you mean {' or '.join(map(repr, close))}?" if close else "see `diptych recipes list`"

    def paper_of(self, name: str) -> RecipePaper:
        """The paper whose folder defines a recipe."""
        return self.papers[self.definitions[name].file.partition("/")[0]]

    def profiles_of(self, name: str) -> Mapping[str, Profile]:
        """The profiles that a recipe can be asked for with; one that is named after a profile has none."""
        profiles = self.paper_of(name).profiles
        return {} if any(name.endswith(f"-{key}") for key in profiles) else profiles

    def all_names(self) -> list[str]:
        """The names of all definitions, and of each with its profiles."""
        profiled = [f"{name}-{profile}" for name in self.definitions for profile in self.profiles_of(name)]
        return sorted({*self.definitions, *profiled})


@cache
def catalogue() -> Catalogue:
    """The packaged recipes."""
    return read_catalogue(resources.files("diptych.recipes"))


def recipe_names() -> list[str]:
    """The names of the packaged recipes, without those that a profile gives."""
    return sorted(catalogue().definitions)


def read_catalogue(root: Traversable) -> Catalogue:
    """Read a folder of papers; it may lie in a zip file."""
    papers: dict[str, RecipePaper] = {}
    definitions: dict[str, Definition] = {}
    for folder in sorted(root.iterdir(), key=lambda folder: folder.name):
        if folder.is_dir() and folder.joinpath("paper.toml").is_file():
            papers[folder.name] = _read_folder(folder, definitions)
    return Catalogue(papers, definitions)


def _read_folder(folder: Traversable, definitions: dict[str, Definition]) -> RecipePaper:
    """Read the folder of one paper, and add its recipes to the definitions."""
    paper = _read(folder.joinpath("paper.toml"), f"{folder.name}/paper.toml", PaperFile)
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml") and file.name != "paper.toml")
    files = {name: _read(folder.joinpath(name), f"{folder.name}/{name}", RecipeFile) for name in names}
    files = dict(sorted(files.items(), key=lambda item: item[1].profile is not None))  # profiles are listed last
    for file_name, file in files.items():
        source = f"{folder.name}/{file_name}"
        for name, section in file.recipe.items():
            if name in definitions:
                raise RecipeError(f"{source}: recipe {name} is also defined in {definitions[name].file}")
            definitions[name] = Definition(name, source, _content(section, file, paper.reference))
    groups = {file.title: tuple(file.recipe) for file in files.values() if file.recipe}
    profiles = {name.removesuffix(".toml"): file.profile for name, file in files.items() if file.profile is not None}
    return RecipePaper(folder.name, paper.title, paper.about, paper.start, paper.reference, groups, profiles)


def _content(section: dict[str, Any], file: RecipeFile, reference: str | None) -> dict[str, Any]:
    """What a recipe's section says, over what its file shares."""
    # A base from the same file brings the shared part along, all but the paper, which belongs to one recipe alone.
    has_shared_base = section.get("base") in file.recipe
    shared = {key: value for key, value in file.shared.items() if key == "paper" or not has_shared_base}
    content: dict[str, Any] = lay_over(section, shared)
    if reference is not None:
        content["paper"] = {"reference": reference, **content.get("paper", {})}
    return content


def _read(path: Traversable, source: str, kind: type[File]) -> File:
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as reason:
        raise RecipeError(f"{source}: not valid TOML: {reason}") from None
    except ValidationError as error:
        raise RecipeError(f"{source}: {first_error(error, kind)}") from None
