"""Prompts: a sentence around every text, such as "a photo of {}", as pretrained models were trained to read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

SLOT = "{}"


def _with_one_slot(prompt: str) -> str:
    if prompt.count(SLOT) != 1:
        raise PydanticCustomError("prompt", "needs {} once, where the text goes, such as 'a photo of {}'")
    return prompt


Prompt = Annotated[str, AfterValidator(_with_one_slot)]


def prompted(prompt: str | None, texts: Iterable[str]) -> Iterator[str]:
    """The texts, each in the slot of the prompt, if there is one."""
    return iter(texts) if prompt is None else (prompt.replace(SLOT, text) for text in texts)
