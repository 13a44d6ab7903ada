"""Weights for a larger vocabulary: rows for words that a trained model did not know.

A new word begins with the vector of the unknown word, which is what the model took it for. The scores of the larger
model are therefore those of the trained one, until training moves the new rows apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from diptych.errors import RecipeError
from diptych.models.matcher import Matcher
from diptych.text.tokenisers.token_table import UNKNOWN


def add_word_rows(tensors: Mapping[str, Tensor], matcher: Matcher, known: int, words: int) -> dict[str, Tensor]:
    """The weights of a model for `known` words as weights of `matcher`, which has `words` and begins with the same.

    Raises RecipeError for a text tower that was fitted to its words.
    """
    fitted = matcher.fitted_text_tower
    if fitted is not None:
        raise RecipeError(
            f"text.grow: the text tower {fitted.settings.name!r} was fitted to the words of the run that training "
            "starts from and cannot have new ones; set text.grow = false"
        )
    grown = dict(tensors)
    for name, wanted in matcher.state_dict().items():
        tensor = tensors.get(name)
        if tensor is not None and (tensor.shape[:1], wanted.shape) == ((known,), (words, *tensor.shape[1:])):
            new = tensor[UNKNOWN].expand(words - known, *tensor.shape[1:])
            grown[name] = torch.cat([tensor, new])
    return grown
