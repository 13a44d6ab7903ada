"""BFAN: attention in both directions, each focused on the relevant part of the other side.

    a_j = softmax_j(smooth x_j) as in SCAN;  keep j where F(j) > 0, and set the other weights to zero
    equal: F(j) = sum_l (a_j - a_l)        prob: F(j) = sum_l sqrt(a_l) (a_j - a_l)
    s(i, c) = mean over words of cos(w, attended regions) + mean over regions of cos(v, attended words)

Reference: Focus Your Attention: A Bidirectional Focal Attention Network for Image-Text Matching, ACM MM 2019.
Needs: several regions per image; texts as tokens.
When to use it: wherever SCAN is used; both directions share one product of regions and words.
Relation to others: SCAN without the weak weights, and with mean pooling. The published figures average the scores of an
`equal` and a `prob` model. The choice of weights has no gradient. If no weight would be kept, as with equal weights or
a single region, all are kept; the authors' public code divides by zero there. A weight within rounding of the mean may
fall on either side of it.
"""

from __future__ import annotations

from typing import Literal

from diptych.models.layers.attention import Attention, Focal, Positive
from diptych.models.matchers.set_matcher import SetMatcher, SetSettings


class BFANSettings(SetSettings):
    """The kind of focus, and how sharp the weights are before it."""

    name: Literal["bfan"] = "bfan"
    focal: Focal = "equal"
    smooth: Positive = 20.0

    @property
    def rule(self) -> Attention:
        """How weights and scores are computed."""
        return Attention(smooth=self.smooth, focal=self.focal, pool="mean")

    def build(self) -> BFAN:
        """A matcher with random weights."""
        return BFAN(self)


class BFAN(SetMatcher):
    """See the module docstring."""

    def __init__(self, settings: BFANSettings) -> None:
        super().__init__(settings, settings.rule, "t2i", "i2t")
        self.settings: BFANSettings = settings
