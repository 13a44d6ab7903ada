"""Judges whether hits fit a query: the probability that a text describes a photo, in words.

    strong    0.5 and above        likely    0.2 and above
    possible  0.015 and above      weak      below, or nothing was found

Nothing was found if the best hit is not probable enough as an answer. How probable it must be depends on the number of
photos, because among many, one always looks a little like what is searched for (`answer_level`). A hit is judged by its
own score and by the query alone, never by how many others fit as well. The probability is the model's calibration
(`models/calibration`); without one, nothing is judged. Neither are hits of the query's own kind, which are the most
similar ones and no answer to a question.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from diptych.data.corpus import Floats
from diptych.errors import RunError
from diptych.index.entries import Fit
from diptych.model import Model
from diptych.models.address import names_pair, run_folder
from diptych.models.calibration.calibration import Calibration

LEVELS: tuple[tuple[Fit, float], ...] = (("strong", 0.5), ("likely", 0.2), ("possible", 0.015))
FOUND = 0.46  # of the best hit of `MANY` entries, as an answer
FEW, MANY = 20, 1000  # entries; the level was measured between them
# FOUND, the power of `answer_level` and 0.015 were chosen on val (benchmarks/probes/nothing_found.py).


@dataclass(frozen=True)
class Judgement:
    """How well a hit fits: in words, and as a probability; None if it is not judged."""

    fit: Fit | None = None
    probability: float | None = None


def calibration_of(model: Model) -> Calibration | None:
    """The calibration in the folder of a model; None if it has none, or one of earlier weights."""
    address = None
    with suppress(RunError):  # a model in memory has no folder
        address = model.address
    if address is None or names_pair(address):
        return None
    found = Calibration.load(run_folder(address))
    return found if found is not None and found.identity == model.identity else None


def answer_level(entries: int, found: float = FOUND) -> float:
    """How probable the best hit among that many entries must be as an answer.

    level / (1 - level) = sqrt(entries / MANY) * found / (1 - found), with entries between FEW and MANY
    """
    odds = found / (1 - found) * math.sqrt(min(max(entries, FEW), MANY) / MANY)
    return odds / (1 + odds)


def judge(probabilities: Floats, best: float, entries: int) -> list[Judgement]:
    """The judgements of some hits among that many entries.

    `best` is the probability of the best of them as an answer. Infinite probabilities mean certain.
    """
    found = best >= answer_level(entries)
    return [_judgement(probability, found=found) for probability in probabilities.tolist()]


def not_judged(hits: Sized) -> list[Judgement]:
    """As many judgements that say nothing."""
    return [Judgement() for _ in range(len(hits))]


def _judgement(probability: float, *, found: bool) -> Judgement:
    known = round(probability, 4) if np.isfinite(probability) else None
    fits = [name for name, least in LEVELS if found and probability >= least]
    return Judgement(fits[0] if fits else "weak", known)
