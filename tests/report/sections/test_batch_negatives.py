from __future__ import annotations

import pytest

from diptych.evaluation.analyses.batch_negatives import measured_misses
from diptych.evaluation.runs import encoded_score
from diptych.report.sections.batch_negatives import PERCENTILES, batch_negatives_rows


def test_rows_are_measured_with_the_scores_of_the_run(encoded):
    rows = batch_negatives_rows(encoded_score(encoded), encoded.corpus, 4)
    assert [row.direction for row in rows] == ["image to text", "text to image"] * len(PERCENTILES)
    for row in rows:
        score, groups = encoded_score(encoded), (encoded.corpus.image_groups, encoded.corpus.text_groups)
        found = measured_misses(score, *groups, batch=4, percentile=row.percentile)
        side = found.image_to_text if row.direction == "image to text" else found.text_to_image
        assert (row.measured.value, row.measured.interval) == (side.share, side.interval)
        assert row.predicted == pytest.approx(row.percentile**3)


def test_a_corpus_smaller_than_a_batch_has_no_rows(encoded):
    texts = len(encoded.corpus.texts)
    assert batch_negatives_rows(encoded_score(encoded), encoded.corpus, texts + 1) == []
