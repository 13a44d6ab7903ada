"""The recall table of a report: one row per direction, with intervals and the recall of random guessing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.chance import chance_recall
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.report.elements import DirectionName, Measure


@dataclass(frozen=True)
class RecallRow:
    """One direction of the recall table; recalls are percentages by cutoff K.

    `chance` is the recall that random guessing would reach. `average_precision` is the mAP in percent, if measured.
    """

    name: DirectionName
    recall: Mapping[int, Measure]
    median_rank: Measure
    mean_rank: Measure
    chance: Mapping[int, float] = field(default_factory=dict)
    average_precision: Measure | None = None


def metric(result: RetrievalResult, name: str) -> Measure:
    """A metric by its name, with its interval if it has one."""
    low, high = result.intervals.bounds.get(name, (None, None))
    return Measure(result.metrics.to_json()[name], low, high)


def recall_rows(result: RetrievalResult) -> list[RecallRow]:
    """Both directions of a result; `chance` is computed for its first gallery."""
    sides: tuple[tuple[DirectionName, str, Integers, Integers], ...] = (
        ("image to text", IMAGE_TO_TEXT, result.folds[0].image_groups, result.folds[0].text_groups),
        ("text to image", TEXT_TO_IMAGE, result.folds[0].text_groups, result.folds[0].image_groups),
    )
    measured = result.metrics.to_json()
    return [
        RecallRow(
            direction,
            {k: metric(result, f"{prefix}_r{k}") for k in CUTOFFS},
            metric(result, f"{prefix}_median"),
            metric(result, f"{prefix}_mean"),
            {k: chance_recall(queries, answers, k) for k in CUTOFFS},
            metric(result, name) if (name := f"{prefix}_map") in measured else None,
        )
        for direction, prefix, queries, answers in sides
    ]
