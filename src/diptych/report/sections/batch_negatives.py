"""How often a batch misses the hardest negatives, measured with a run's own scores, for its report."""

from __future__ import annotations

from diptych.data.corpus import Corpus
from diptych.evaluation.analyses.batch_negatives import Misses, measured_misses
from diptych.evaluation.metrics.ranks import Score
from diptych.report.run_page import DirectionName, Measure, SamplingRow

PERCENTILES = (0.9, 0.99, 0.999)


def sampling_rows(score: Score, corpus: Corpus, batch: int) -> list[SamplingRow]:
    """Both directions at a few percentiles of a corpus' scores; none where that does not fill a batch."""
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
            rows.append(SamplingRow(direction, batch, percentile, found.predicted, measure))
    return rows
