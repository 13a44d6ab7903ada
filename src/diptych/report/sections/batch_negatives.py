"""How often a random batch misses the hardest negatives, predicted and measured with a run's own scores."""

from __future__ import annotations

from dataclasses import dataclass

from diptych.data.corpus import Corpus
from diptych.evaluation.analyses.batch_negatives import Misses, measured_misses
from diptych.evaluation.metrics.scores import Score
from diptych.report.elements import DirectionName, Measure

PERCENTILES = (0.9, 0.99, 0.999)


@dataclass(frozen=True)
class BatchNegativesRow:
    """How often a batch of this size contains no negative above a percentile, predicted and measured.

    `percentile`, `predicted` and `measured` are between 0 and 1; the page shows them as percentages.
    """

    direction: DirectionName
    batch: int
    percentile: float
    predicted: float
    measured: Measure


def batch_negatives_rows(score: Score, corpus: Corpus, batch: int) -> list[BatchNegativesRow]:
    """Both directions at several percentiles; empty if the corpus has fewer texts than a batch."""
    if len(corpus.texts) < batch:
        return []
    rows = []
    for percentile in PERCENTILES:
        groups = corpus.image_groups, corpus.text_groups
        found = measured_misses(score, *groups, batch=batch, percentile=percentile)
        sides: dict[DirectionName, Misses] = {
            "image to text": found.image_to_text,
            "text to image": found.text_to_image,
        }
        for direction, misses in sides.items():
            measure = Measure(misses.share, *misses.interval)
            rows.append(BatchNegativesRow(direction, batch, percentile, found.predicted, measure))
    return rows
