"""Strict settings: every key of a recipe is validated, and an error names the key and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError
from pydantic.fields import FieldInfo

from diptych.errors import RecipeError, did_you_mean
from diptych.plugins import is_outside

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

Flag = StrictBool
Count = Annotated[int, Field(ge=1, strict=True)]  # 1 or more; neither 2.0 nor true
Number = Annotated[float, Field(strict=True)]  # finite, an integer or a float
Dropout = Annotated[Number, Field(ge=0, lt=1)]  # the share of entries that are dropped in training


class Settings(BaseModel):
    """Immutable settings that refuse unknown keys and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _ClearErrors(ModelMetaclass):
    """Makes calls such as `Hinge(margn=0.1)` raise a RecipeError of one sentence.

    Recipes are read by `model_validate`, which does not come here: their errors also say where in the recipe.
    """

    def __call__(cls, *args: Any, **settings: Any) -> Any:  # noqa: N805 (of a metaclass)
        try:
            return super().__call__(*args, **settings)
        except ValidationError as error:
            raise RecipeError(f"{cls.__name__}: {first_error(error, cast('type[BaseModel]', cls))}") from None


class NamedSettings(Settings, metaclass=_ClearErrors):
    """Settings whose class a recipe finds by `name`: the name of its file, of an entry point, or `module:Class`.

    A class inside of the package declares its one name. Any other class is called `module:Class` until an entry point
    calls it otherwise, whatever it declares or inherits, so that the settings say where to find it again.
    """

    name: str = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if is_outside(cls):
            cls.model_fields["name"] = FieldInfo(annotation=str, default=f"{cls.__module__}:{cls.__qualname__}")
            cls.model_rebuild(force=True, raise_errors=False)  # later, if a type is not defined yet


def first_error(error: ValidationError, settings: type[BaseModel]) -> str:
    """The first error of a validation as one line: the key, what is wrong, and a suggestion for an unknown key."""
    details = error.errors()[0]
    path, known = _resolve_location(settings, details["loc"])
    key = ".".join(path)
    if details["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {did_you_mean(path[-1], known)}"
    if details["type"] == "missing":
        return f"key {key!r} is missing"
    if details["type"] == "union_tag_not_found":
        return f"{key}: needs a {details['ctx']['discriminator'].strip(chr(39))}"
    if details["type"] == "union_tag_invalid":
        context = details["ctx"]
        return f"{key}.{context['discriminator'].strip(chr(39))} = {context['tag']!r}: use {context['expected_tags']}"
    message = f"{details['msg'][0].lower()}{details['msg'][1:]}"
    return f"{key} = {details['input']!r}: {message}" if key else message


def _resolve_location(settings: type[BaseModel], location: tuple[int | str, ...]) -> tuple[list[str], set[str]]:
    """The keys that lead to an error, as a recipe writes them (lists count from 1), and the keys known there."""
    models = {settings}
    path = []
    for number, step in enumerate(location):
        known = {name for model in models for name in model.model_fields}
        inner = {found for model in models for found in _models_of_field(model, str(step))}
        if isinstance(step, int):
            path.append(str(step + 1))
        elif step in known or number == len(location) - 1:  # otherwise it is the tag of a union, not a key
            path.append(step)
        models = inner if inner and number < len(location) - 1 else models
    return path, {name for model in models for name in model.model_fields}


def _models_of_field(model: type[BaseModel], name: str) -> set[type[BaseModel]]:
    field = model.model_fields.get(name)
    return set() if field is None else _models_in(field.annotation)


def _models_in(annotation: object) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for part in getattr(annotation, "__args__", ()) for found in _models_in(part)}
