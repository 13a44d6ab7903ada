"""SCAN: regions and words attend to each other, and the score pools how well each finds itself in the other side.

    s_kj = v_k . w_j,  x_kj = s_kj / || s_k. || of LeakyReLU(s),  a_j = softmax_k(smooth x_kj)
    s(i, c) = log(sum_j exp(lse cos(w_j, sum_k a_kj v_k))) / lse        (Lee et al. 2018, Eq. 1-9, t2i)

with v the regions, w the words; i2t swaps their roles.

Reference: Stacked Cross Attention for Image-Text Matching, ECCV 2018.
Needs: several regions an image; texts as tokens.
When to use it: where which word is which region matters; it is a score of pairs, so that nothing can be indexed, and
each pair costs as many products as it has regions times words.
Relation to others: the mean of a t2i and an i2t model's scores is the paper's best; BFAN keeps the strongest of the
weights. The norm, the pool and their names are those of the authors' public code.
"""

from __future__ import annotations

from typing import Literal

from diptych.models.layers.attention import Attention, Direction, Norm, PoolName, Positive
from diptych.models.matchers.set_matcher import SetMatcher, SetSettings


class SCANSettings(SetSettings):
    """Which side attends, and how: `smooth` sharpens the weights, `lse` the pool of that name.

    The paper's for Flickr30K: t2i with smooth 9 and lse 6, i2t with smooth 4 and lse 5.
    """

    name: Literal["scan"] = "scan"
    direction: Direction = "t2i"
    norm: Norm = "clipped_l2norm"
    smooth: Positive = 9.0
    pool: PoolName = "lse"
    lse: Positive = 6.0

    def build(self) -> SCAN:
        """A fresh matcher."""
        return SCAN(self)


class SCAN(SetMatcher):
    """See the module's description."""

    def __init__(self, settings: SCANSettings) -> None:
        rule = Attention(settings.norm, settings.smooth, pool=settings.pool, lse=settings.lse)
        super().__init__(settings, rule, settings.direction)
        self.settings: SCANSettings = settings
