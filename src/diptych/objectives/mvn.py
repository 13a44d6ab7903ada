"""The contrastive baseline whose negatives come from both modalities, as in multi-modal versatile networks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from diptych.objectives.ranking import Queries
from diptych.objectives.temperature import Tempered


class MVN(Tempered):
    """The contrastive baseline whose negatives come from both modalities, as in multi-modal versatile networks.

        -log( exp(s(i, c) / t) / (exp(s(i, c) / t) + sum_c' exp(s(i, c') / t) + sum_i' exp(s(i, i') / t)) )
        -log( exp(s(i, c) / t) / (exp(s(i, c) / t) + sum_i' exp(s(i', c) / t) + sum_c' exp(s(c, c') / t)) )

    Reference: Alayrac et al. 2020, as Jain and Verma (ConVSE, section III-B) adapt it: 2 (N - 1) negatives for each
    anchor. They give no temperature for it; the default is that of their own losses.

    Needs: the scores of the batch, of its images with each other and of its texts with each other, and the positives
    mask.

    When to use it: as a baseline. It also pushes images away from images, which matching does not require.

    Relation to others: without the last sum of each line it is `contrastive`.

    - `temperature`: what scores are divided by; the lower it is, the more the hardest negatives count.
    - `learn_temperature`: makes the temperature a parameter; call `as_module()` to train it.
    """

    name: Literal["mvn"] = "mvn"

    @property
    def needs(self) -> tuple[str, ...]:
        """Images are compared with images, texts with texts."""
        return ("within",)

    def per_query_loss(self, queries: Queries) -> Tensor:
        """The negative log-likelihood of each query's positive: (queries,)."""
        assert queries.within is not None, "declared in needs"
        # Groups decide within a modality, too, so the positives are in the same places.
        same_side = self.relative_logits(queries, queries.within).masked_fill_(queries.positives, -torch.inf)
        return torch.cat([self.candidate_logits(queries), same_side], 1).logsumexp(1)
