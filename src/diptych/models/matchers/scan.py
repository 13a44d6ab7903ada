"""SCAN: regions and words attend to each other, and the score pools how similar each is to what it attends to.

    s_kj = v_k . w_j,  x_kj = s_kj / || s_k. || of LeakyReLU(s),  a_j = softmax_k(smooth x_kj)
    s(i, c) = log(sum_j exp(lse cos(w_j, sum_k a_kj v_k))) / lse        (Lee et al. 2018, Eq. 1-9, t2i)

with v the regions, w the words; i2t swaps their roles. A sum over n words is larger for a longer text: by log(n) / lse
if all words fit equally well, at lse 6 about 0.13 between 8 words and 18. `pool = "lme"` subtracts log(n) / lse, the
logarithm of a mean of exponentials; the paper's pools are `lse` and `mean`.

Reference: Stacked Cross Attention for Image-Text Matching, ECCV 2018.
Needs: several regions per image; texts as tokens.
When to use it: when it matters which word matches which region. Every pair is scored by itself, so an index can only
re-rank with it, and a pair costs as many products as it has regions times words.
Relation to others: the paper's best result averages the scores of a t2i and an i2t model; BFAN keeps only the strongest
weights. The norm, the pool and their names are those of the authors' public code.
"""

from __future__ import annotations

from typing import Literal

from diptych.models.layers.attention import Attention, Direction, Norm, PoolName, Positive
from diptych.models.matchers.set_matcher import SetMatcher, SetSettings


class SCANSettings(SetSettings):
    """Which side attends, and how: `smooth` sharpens the weights, `lse` the pools `lse` and `lme`.

    The paper's values for Flickr30K: t2i with smooth 9 and lse 6, i2t with smooth 4 and lse 5.
    """

    name: Literal["scan"] = "scan"
    direction: Direction = "t2i"
    norm: Norm = "clipped_l2norm"
    smooth: Positive = 9.0
    pool: PoolName = "lse"
    lse: Positive = 6.0

    @property
    def rule(self) -> Attention:
        """How weights and scores are computed."""
        return Attention(self.norm, self.smooth, pool=self.pool, lse=self.lse)

    def build(self) -> SCAN:
        """A matcher with random weights."""
        return SCAN(self)


class SCAN(SetMatcher):
    """See the module docstring."""

    def __init__(self, settings: SCANSettings) -> None:
        super().__init__(settings, settings.rule, settings.direction)
        self.settings: SCANSettings = settings
