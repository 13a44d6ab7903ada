"""The contrastive baseline whose negatives come from both modalities, as in multi-modal versatile networks.

    -log( exp(s(i, c) / t) / (exp(s(i, c) / t) + sum_c' exp(s(i, c') / t) + sum_i' exp(s(i, i') / t)) )
    -log( exp(s(i, c) / t) / (exp(s(i, c) / t) + sum_i' exp(s(i', c) / t) + sum_c' exp(s(c, c') / t)) )

Reference: Alayrac et al. 2020, as Jain and Verma (ConVSE, section III-B) adapt it: 2 (N - 1) negatives for each anchor.
They give no temperature for it; the default is that of their own losses.
Needs: scores of the batch, of its images among themselves and of its texts among themselves, and the positives mask.
When to use it: to compare with. It also pushes images from images, which matching does not ask for.
Relation to others: without the last sum of each line it is `contrastive`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from diptych.objectives.objective import Queries
from diptych.objectives.temperature import Tempered


class MVN(Tempered):
    """Cross-entropy over everything in the batch; see the module's description."""

    name: Literal["mvn"] = "mvn"

    @property
    def needs_within(self) -> bool:
        """Images are compared with images, texts with texts."""
        return True

    def lost(self, queries: Queries) -> Tensor:
        """Minus the logarithm of each query's share for its own: (queries,)."""
        assert queries.within is not None, "asked for by needs_within"
        # Groups decide in either modality, so the positives are in the same places.
        same = self.leads(queries, queries.within).masked_fill_(queries.positives, -torch.inf)
        return torch.cat([self.rivals(queries), same], 1).logsumexp(1)
