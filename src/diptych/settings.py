"""Strict settings: what a recipe says is checked key by key, and a mistake is named with its remedy."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from diptych.errors import did_you_mean

Flag = StrictBool
Count = Annotated[int, Field(ge=1, strict=True)]
Number = Annotated[float, Field(strict=True)]


class Settings(BaseModel):
    """Frozen settings that refuse unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def first_error(error: ValidationError, settings: type[BaseModel]) -> str:
    """The first mistake of a validation as one line: the key, what is wrong, and the nearest known name."""
    mistake = error.errors()[0]
    path, known = _walk(settings, mistake["loc"])
    key = ".".join(path)
    if mistake["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {did_you_mean(path[-1], known)}"
    if mistake["type"] == "missing":
        return f"key {key!r} is missing"
    if mistake["type"] == "union_tag_not_found":
        return f"{key}: needs a {mistake['ctx']['discriminator'].strip(chr(39))}"
    if mistake["type"] == "union_tag_invalid":
        context = mistake["ctx"]
        return f"{key}.{context['discriminator'].strip(chr(39))} = {context['tag']!r}: use {context['expected_tags']}"
    return f"{key} = {mistake['input']!r}: {mistake['msg'][0].lower()}{mistake['msg'][1:]}"


def _walk(settings: type[BaseModel], place: tuple[int | str, ...]) -> tuple[list[str], set[str]]:
    """A mistake's place as a recipe writes it, lists counted from 1, and the keys that are known there."""
    models = {settings}
    path = []
    for number, step in enumerate(place):
        known = {name for model in models for name in model.model_fields}
        inner = {found for model in models for found in _models_under(model, str(step))}
        if isinstance(step, int):
            path.append(str(step + 1))
        elif step in known or number == len(place) - 1:  # else it is the tag of a choice, which is no key
            path.append(step)
        models = inner if inner and number < len(place) - 1 else models
    return path, {name for model in models for name in model.model_fields}


def _models_under(model: type[BaseModel], name: str) -> set[type[BaseModel]]:
    field = model.model_fields.get(name)
    return set() if field is None else _models_in(field.annotation)


def _models_in(annotation: object) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for part in getattr(annotation, "__args__", ()) for found in _models_in(part)}
