from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from diptych.data.corpus import Corpus
from diptych.data.grades import Grades, read_grades
from diptych.errors import ScoreError
from diptych.evaluation.metrics.agreement import correlations_within, sampled_spearman
from diptych.evaluation.metrics.rank_correlation import MEASURES, correlations
from diptych.evaluation.metrics.scores import matrix_score
from diptych.evaluation.metrics.significance import draw_weights
from diptych.evaluation.protocols.grades import (
    evaluate_encoded_grades,
    graded_part,
    measure_grades,
    score_of_pairs,
)
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings

VSE = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)
SCAN = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9)


def corpus_of(images=9, texts=14):
    random = np.random.default_rng(0)
    groups = np.arange(images) // 2
    return Corpus(
        name="mine",
        image_ids=[f"{row}.jpg" for row in range(images)],
        image_groups=groups,
        image_splits=np.array(["test"] * images),
        texts=[f"text {row}" for row in range(texts)],
        text_groups=random.choice(groups, texts),
        text_splits=np.array(["test"] * texts),
    )


def grades_of(corpus, count=60, seed=1):
    """Some pairs several times, with different grades."""
    random = np.random.default_rng(seed)
    images, texts = random.integers(1, len(corpus.image_ids), count), random.integers(2, len(corpus.texts) - 1, count)
    return Grades(images, texts, random.integers(1, 5, count).astype(float))


def scores_of(corpus, seed=2):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(len(corpus.image_ids), len(corpus.texts))))


class Pairs:
    """Looks scores up and records which."""

    def __init__(self, scores):
        self.scores, self.asked = scores, []

    def __call__(self, images, texts):
        self.asked += zip(images.tolist(), texts.tolist(), strict=True)
        return self.scores[torch.from_numpy(images), torch.from_numpy(texts)]


def test_all_views_are_those_of_the_graded_pairs():
    corpus = corpus_of()
    grades, pairs = grades_of(corpus), Pairs(scores_of(corpus))
    found = measure_grades(pairs, corpus, grades, draws=40, seed=3)
    assert len(pairs.asked) == len(set(pairs.asked)) < len(grades)  # each pair once, and no other
    assert set(pairs.asked) == set(zip(grades.images.tolist(), grades.texts.tolist(), strict=True))
    scores = pairs.scores.numpy()[grades.images, grades.texts]
    expected = correlations(scores, grades.values)
    for name, rows in (("image", grades.images), ("text", grades.texts)):
        used, within = correlations_within(scores, grades.values, rows)
        expected |= {f"{name}_{measure}": within[:, k].mean() for k, measure in enumerate(MEASURES)}
        sampled = sampled_spearman(scores, grades.values, rows, 40, np.random.default_rng(3))
        expected[f"cxc_{name}_spearman"] = sampled.mean()
        assert found.deviations[f"cxc_{name}_spearman"] == sampled.std()
        assert found.queries[name] == len(used) > 5
    assert found.metrics == pytest.approx(expected)
    assert (found.pairs, found.images, found.texts) == (60, len(set(grades.images)), len(set(grades.texts)))


def test_intervals_come_from_draws_of_groups():
    corpus = corpus_of()
    grades, scores = grades_of(corpus), scores_of(corpus)
    found = measure_grades(Pairs(scores), corpus, grades, level=0.5, draws=200, seed=3).intervals
    assert set(found.bounds) == {f"{view}{measure}" for view in ("", "image_", "text_") for measure in MEASURES}
    of_pairs = scores.numpy()[grades.images, grades.texts]

    def drawn(groups):
        names = np.unique(groups)
        (weights,) = draw_weights(200, len(names), np.random.default_rng(3))
        for weight in weights.astype(int):
            yield np.concatenate(
                [np.tile(np.flatnonzero(groups == name), n) for name, n in zip(names, weight, strict=True)]
            )

    pooled = [
        correlations(of_pairs[rows], grades.values[rows])["tau_b"] for rows in drawn(corpus.image_groups[grades.images])
    ]
    assert found.bounds["tau_b"] == pytest.approx(tuple(np.quantile(pooled, [0.25, 0.75])))
    for name, rows, groups in (
        ("image", grades.images, corpus.image_groups),
        ("text", grades.texts, corpus.text_groups),
    ):
        used, within = correlations_within(of_pairs, grades.values, rows)
        means = [within[queries, 0].mean() for queries in drawn(groups[used])]
        assert found.bounds[f"{name}_spearman"] == pytest.approx(tuple(np.quantile(means, [0.25, 0.75])))


def test_what_cannot_be_measured_is_left_out_of_the_result():
    corpus = corpus_of()
    one_text_each = Grades(np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([1.0, 2.0, 2.0]))
    found = measure_grades(Pairs(scores_of(corpus)), corpus, one_text_each, draws=5)
    assert set(found.metrics) == set(MEASURES)
    assert found.queries == {"image": 0, "text": 0}
    assert "within" not in str(found)
    equal = replace(one_text_each, values=np.array([2.0, 2.0, 2.0]))
    with pytest.raises(ScoreError, match=r"^mine: all 3 grades are 2; nothing to compare with$"):
        measure_grades(Pairs(scores_of(corpus)), corpus, equal)
    scores = scores_of(corpus)
    scores[1, 4] = torch.nan
    with pytest.raises(ScoreError, match=r"^image 1\.jpg and text 'text 4': their score is not a number$"):
        measure_grades(Pairs(scores), corpus, one_text_each)
    with pytest.raises(ScoreError, match="at least one draw"):
        measure_grades(Pairs(scores), corpus, one_text_each, draws=0)


def test_a_result_is_a_table_a_frame_and_json():
    corpus = corpus_of()
    grades = read_grades([("text 3", "1.jpg", 2), ("text 4", "1.jpg", 1), ("text 3", "none.jpg", 2)], corpus)
    more = grades_of(corpus)
    joined = Grades(
        *(np.concatenate(both) for both in ((grades.images, more.images), (grades.texts, more.texts))),
        np.concatenate([grades.values, more.values]),
        grades.problems,
    )
    found = measure_grades(Pairs(scores_of(corpus)), corpus, joined, draws=20)
    told = json.loads(json.dumps(found.to_json()))
    assert (told["protocol"], told["pairs"], told["left_out"]) == ("grades", 62, 1)
    assert told["metrics"] == found.metrics
    assert told["intervals"]["bounds"]["tau_b"] == list(found.intervals.tau_b)
    assert told["deviations"].keys() == {"cxc_image_spearman", "cxc_text_spearman"}
    lines = [line.split("  ")[0] for line in str(found).splitlines() if line and not line.startswith(" ")]
    assert lines[:-1] == [
        "62 grades: 8 images, 11 texts",
        *("all pairs", "within an image", "within a text", "one pair per image", "one pair per text"),
    ]
    assert f"{found.metrics['tau_b']:.3f}" in str(found)
    frame = found.to_frame()
    assert frame.metric.tolist() == list(found.metrics)
    assert frame.low.isna().tolist() == [name.startswith("cxc") for name in found.metrics]


def encoded_part(model, corpus, grades, unread=()):
    """Random encodings of the graded images and texts, but for some images."""
    part = graded_part(corpus, grades)
    keys = [int(name.partition(".")[0]) for name in part.image_ids], [int(text.split()[1]) for text in part.texts]

    def vectors(numbers, *shape):  # those of an image or a text are the same in every part
        rows = [torch.randn(shape, generator=torch.Generator().manual_seed(number)) for number in numbers]
        return normalize(torch.stack(rows), dim=-1)

    shapes = ((3, 4), (5, 4)) if model is SCAN else ((4,), (4,))
    images = [number for number in keys[0] if f"{number}.jpg" not in unread]
    return EncodedCorpus(
        model,
        vectors(images, *shapes[0]),
        vectors([100 + number for number in keys[1]], *shapes[1]),
        np.zeros(len(images), np.int64),
        part.text_groups,
        "same",
        skipped=dict.fromkeys(unread, "cannot be read"),
    )


@pytest.mark.parametrize("model", [VSE, SCAN], ids=["vectors", "sets"])
def test_encodings_of_the_graded_part_give_the_scores_of_their_pairs(model):
    corpus = corpus_of()
    grades = grades_of(corpus)
    whole = Grades(*(np.array(each) for each in zip(*np.ndindex(9, 14), strict=True)), np.arange(126.0))
    everything = encoded_part(model, corpus, whole)
    matrix = everything.matcher().score(everything.images, everything.texts)
    expected = measure_grades(score_of_pairs(matrix_score(matrix)), corpus, grades, draws=10)
    found = evaluate_encoded_grades([encoded_part(model, corpus, grades)], corpus, grades, draws=10)
    assert found.metrics == pytest.approx(expected.metrics)
    ensemble = evaluate_encoded_grades([encoded_part(model, corpus, grades)] * 2, corpus, grades, draws=10)
    assert ensemble.metrics == pytest.approx(expected.metrics)


def test_images_that_cannot_be_read_lose_their_grades():
    corpus = corpus_of()
    grades = grades_of(corpus)
    unread = ("2.jpg", "5.jpg")
    kept = ~np.isin(grades.images, [2, 5])
    left = Grades(grades.images[kept], grades.texts[kept], grades.values[kept])
    found = evaluate_encoded_grades([encoded_part(VSE, corpus, grades, unread)], corpus, grades, draws=10)
    assert found.metrics == evaluate_encoded_grades([encoded_part(VSE, corpus, left)], corpus, left, draws=10).metrics
    assert found.pairs == kept.sum() < len(grades)
    assert [str(problem) for problem in found.problems] == [
        "2.jpg: has grades, but cannot be read",
        "5.jpg: has grades, but cannot be read",
    ]
    one, other = encoded_part(VSE, corpus, grades), replace(encoded_part(VSE, corpus, grades, unread), digest="other")
    with pytest.raises(ScoreError, match=r"same images and texts; only one could read 2\.jpg"):
        evaluate_encoded_grades([one, other], corpus, grades)


def test_any_two_of_the_graded_part_may_be_a_pair():
    corpus = corpus_of()
    grades = Grades(np.array([7, 1, 7]), np.array([2, 9, 9]), np.array([1.0, 2.0, 3.0]))
    part = graded_part(corpus, grades)
    assert (part.image_ids, part.texts) == (["1.jpg", "7.jpg"], ["text 2", "text 9"])
    assert part.matched() is part
    assert set(part.image_groups.tolist()) == set(part.text_groups.tolist()) == {0}


def test_scores_of_pairs_are_those_of_the_matrix():
    matrix = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    random = np.random.default_rng(0)
    images, texts = random.integers(0, 6, 40), random.integers(0, 9, 40)
    found = score_of_pairs(matrix_score(matrix))(images, texts)
    assert torch.equal(found, matrix[torch.from_numpy(images), torch.from_numpy(texts)].double())
