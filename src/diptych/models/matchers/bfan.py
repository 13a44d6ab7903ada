"""BFAN: attention in both directions, each focused on the part of the other side that matters.

    a_j = softmax_j(smooth x_j) as in SCAN;  keep j where F(j) > 0, and let the rest weigh nothing
    equal: F(j) = sum_l (a_j - a_l)        prob: F(j) = sum_l sqrt(a_l) (a_j - a_l)
    s(i, c) = mean over words of cos(w, attended regions) + mean over regions of cos(v, attended words)

Reference: Focus Your Attention: A Bidirectional Focal Attention Network for Image-Text Matching, ACM MM 2019.
Needs: several regions an image; texts as tokens.
When to use it: where SCAN is used; both directions share one product of regions and words.
Relation to others: SCAN with the weak weights left out, and the mean as the pool. The published figures are of the mean
of an `equal` and a `prob` model's scores. Which weights are kept has no gradient. Where none would be kept, as of equal
weights or of a single region, all are; the authors' public code divides by zero there. A weight within rounding of the
mean may fall on either side of it.
"""

from __future__ import annotations

from typing import Literal

from diptych.models.layers.attention import Attention, Focal, Positive
from diptych.models.matchers.set_matcher import SetMatcher, SetSettings


class BFANSettings(SetSettings):
    """Which focus, and how sharp the weights are before it."""

    name: Literal["bfan"] = "bfan"
    focal: Focal = "equal"
    smooth: Positive = 20.0

    def build(self) -> BFAN:
        """A fresh matcher."""
        return BFAN(self)


class BFAN(SetMatcher):
    """See the module's description."""

    def __init__(self, settings: BFANSettings) -> None:
        rule = Attention(smooth=settings.smooth, focal=settings.focal, pool="mean")
        super().__init__(settings, rule, "t2i", "i2t")
        self.settings: BFANSettings = settings
