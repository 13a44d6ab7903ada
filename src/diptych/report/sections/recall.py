"""What an evaluation measured, as a page's tables show it."""

from __future__ import annotations

from diptych.data.corpus import Integers
from diptych.evaluation.metrics.chance import chance_recall
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.report.run_page import Direction, DirectionName, Measure


def measured(result: RetrievalResult, name: str) -> Measure:
    """A metric by its name, with its interval where it has one."""
    low, high = result.intervals.bounds.get(name, (None, None))
    return Measure(result.metrics.to_json()[name], low, high)


def directions(result: RetrievalResult) -> list[Direction]:
    """Both directions of a result on one gallery, beside what chance would reach."""
    titles: tuple[tuple[DirectionName, str, Integers, Integers], ...] = (
        ("image to text", IMAGE_TO_TEXT, result.folds[0].image_groups, result.folds[0].text_groups),
        ("text to image", TEXT_TO_IMAGE, result.folds[0].text_groups, result.folds[0].image_groups),
    )
    known = result.metrics.to_json()
    return [
        Direction(
            title,
            {k: measured(result, f"{key}_r{k}") for k in CUTOFFS},
            measured(result, f"{key}_median"),
            measured(result, f"{key}_mean"),
            {k: chance_recall(queries, answers, k) for k in CUTOFFS},
            measured(result, name) if (name := f"{key}_map") in known else None,
        )
        for title, key, queries, answers in titles
    ]
