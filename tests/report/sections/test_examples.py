from __future__ import annotations

import numpy as np
import pytest

from diptych.errors import ScoreError
from diptych.evaluation.runs import evaluate_encoded
from diptych.index.entries import Entry, Hit
from diptych.report.sections.examples import ExampleQueries, answered_question, first_per_group


def test_examples_are_the_extremes_and_mark_correct_answers(encoded):
    corpus, result = encoded.corpus, evaluate_encoded([encoded])
    examples = ExampleQueries(encoded, corpus, result)
    for best, extreme in ((True, min), (False, max)):
        texts = [query for query in examples.select(best) if query.direction == "text to image"]
        assert texts[0].rank == extreme(result.folds[0].texts)
        row = corpus.texts.index(texts[0].query_text)
        expected = corpus.image_ids[int(np.argmax(corpus.image_groups == corpus.text_groups[row]))]
        assert texts[0].first_correct.caption == expected
        assert texts[0].first_correct.correct
        assert all(answer.correct == (answer.caption == expected) for answer in texts[0].answers)
        groups = [corpus.text_groups[corpus.texts.index(query.query_text)] for query in texts]
        assert len(set(groups)) == len(groups)


def test_image_queries_have_their_picture_and_the_texts_in_order(encoded):
    examples = ExampleQueries(encoded, encoded.corpus, evaluate_encoded([encoded]))
    row = examples.image_rows(best=True)[0]
    query = examples.image_query(row)
    assert (query.direction, query.query_text) == ("image to text", encoded.corpus.image_ids[row])
    assert query.query_picture.startswith("data:image/")
    scores = [answer.score for answer in query.answers]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 5


def test_folds_are_refused(encoded):
    with pytest.raises(ScoreError, match="one gallery; measure without folds"):
        ExampleQueries(encoded, encoded.corpus, evaluate_encoded([encoded], folds=2))


def test_a_question_has_the_pictures_of_its_hits(encoded):
    name = encoded.corpus.image_ids[2]
    question = answered_question(encoded.corpus, "two red circles", [Hit(Entry(1, "image", name, 1), 0.5)])
    (answer,) = question.answers
    assert (question.text, answer.caption, answer.score, answer.correct) == ("two red circles", name, 0.5, None)
    assert answer.picture.startswith("data:image/")


def test_one_row_per_group_in_the_given_order():
    rows, groups = np.array([5, 0, 1, 4, 2, 3]), np.array([0, 0, 1, 2, 2, 3])
    assert first_per_group(rows, groups, 2) == [5, 0]
    assert first_per_group(rows, groups, 9) == [5, 0, 4, 2]
