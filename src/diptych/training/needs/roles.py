"""The role of each pair: whether its image and text appear for the first time, and which of them are queries."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.neighbours import QueryDirections
from diptych.objectives.extras import PairRoles
from diptych.training.needs.need import EncodedPairs, Need


class Roles(Need):
    """Tells objectives which pairs repeat an image or a text, and which count as queries."""

    name: ClassVar[str] = "roles"

    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> PairRoles:
        """The roles of a batch; without drawn neighbours every pair is a query in both directions."""
        device = pairs.image_of.device
        directions = batch.extras.get(QueryDirections)
        is_query = np.ones((len(batch), 2), bool) if directions is None else directions.is_query
        image_is_query, text_is_query = torch.from_numpy(is_query).to(device).unbind(1)
        return PairRoles(_first(batch.image_of, device), _first(batch.text_of, device), image_is_query, text_is_query)


def _first(rows: Integers, device: torch.device) -> Tensor:
    """Marks the first pair with each row: (pairs,)."""
    is_first = np.zeros(len(rows), bool)
    is_first[np.unique(rows, return_index=True)[1]] = True
    return torch.from_numpy(is_first).to(device)
