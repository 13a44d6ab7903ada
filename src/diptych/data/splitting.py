"""Splits of data that has none of its own: which groups become val and test, by a rule that depends on names alone."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from diptych.errors import DataError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus

SPLIT_IT = "split it with --val 0.15 --test 0.15 (in Python: Corpus.with_splits)"
NOISY_BELOW = 100  # val images; with fewer, a recall moves by more than a point if one query changes


@dataclass(frozen=True)
class SplitRule:
    """The share of the groups in val and in test, the rest being train, and the seed that selects them.

    Groups are put in the order of a hash of the seed and the first image id of the group (in alphabetical order). The
    first of them become val and the next ones test. The result does not depend on the order of images or texts.
    """

    val: float = 0.0
    test: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in (("val", self.val), ("test", self.test)):
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
                raise DataError(f"{name} = {share!r}: the share of a split is a number from 0 to below 1, such as 0.15")
        if not self.val + self.test:
            raise DataError("val and test are both 0, so there is nothing to split; use val=0.15, test=0.15")
        if self.val + self.test >= 1:
            raise DataError(f"val = {self.val:g} and test = {self.test:g} leave nothing to train on; use 0.15 for each")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise DataError(f"seed = {self.seed!r}: the seed of a split is a whole number from 0")

    def __str__(self) -> str:
        return f"val {self.val:g}, test {self.test:g}, seed {self.seed}"

    def to_json(self) -> dict[str, float]:
        """The rule as plain values."""
        return asdict(self)

    def counts(self, name: str, groups: int) -> tuple[int, int]:
        """The number of groups in val and in test; DataError if a split that was asked for would be empty."""
        val, test = (math.floor(groups * share + 0.5) for share in (self.val, self.test))
        for split, share, count in (("val", self.val, val), ("test", self.test, test)):
            if share and not count:
                raise DataError(
                    f"{name}: {split} = {share:g} of {groups:,} groups leaves {split} empty; use a larger share"
                )
        if val + test >= groups:
            raise DataError(f"{name}: {self} of {groups:,} groups leave train empty; use smaller shares")
        return val, test


# Who decided on the splits of a corpus: its source, the default of its format because the source names none, or a rule.
SplitOrigin = Literal["source", "default"] | SplitRule


def apply_rule(corpus: Corpus, rule: SplitRule) -> Corpus:
    """The corpus with the splits of a rule; DataError if it has splits of its own.

    Groups stay together; texts without an image are train.
    """
    if corpus.split_origin == "source":
        raise DataError(
            f"{corpus.name}: has splits of its own (images: {size_list(corpus)}), and val and test would replace them; "
            "leave val and test out, or remove the splits from the data"
        )
    first_id: dict[int, str] = {}
    for group, name in zip(corpus.image_groups.tolist(), corpus.image_ids, strict=True):
        first_id[group] = min(name, first_id.get(group, name))
    ordered = sorted(first_id, key=lambda group: _position(rule.seed, first_id[group]))
    val, test = rule.counts(corpus.name, len(ordered))
    split_of = dict.fromkeys(ordered[:val], "val") | dict.fromkeys(ordered[val : val + test], "test")
    image_splits, text_splits = (
        np.array([split_of.get(group, "train") for group in groups.tolist()], np.str_)
        for groups in (corpus.image_groups, corpus.text_groups)
    )
    return replace(corpus, image_splits=image_splits, text_splits=text_splits, split_origin=rule)


def describe_splits(corpus: Corpus) -> str | None:
    """One sentence on how Diptych has split a corpus; None if the splits are its own."""
    if corpus.split_origin == "source":
        return None
    rule = corpus.split_origin
    how = "the default; choose others with --val 0.15 --test 0.15" if rule == "default" else str(rule)
    return f"{corpus.name} has no splits of its own: Diptych split it into {size_list(corpus)} images ({how})"


def noise_warning(corpus: Corpus) -> str | None:
    """A warning if Diptych has split a corpus and val is too small for reliable comparisons."""
    images = corpus.split_sizes().get("val", 0)
    if corpus.split_origin == "source" or not 0 < images < NOISY_BELOW:
        return None
    plural = "s" * (images > 1)
    return (
        f"warning: val has only {images} image{plural}, so its recalls are noisy: one image more or less at the top is "
        f"{100 / images:.1f} points; use more images, or a larger --val"
    )


def size_list(corpus: Corpus) -> str:
    """The number of images in each split, for messages."""
    return ", ".join(f"{name} {count:,}" for name, count in corpus.split_sizes().items())


def _position(seed: int, name: str) -> tuple[bytes, str]:
    content = f"{seed}\0{name}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest(), name
