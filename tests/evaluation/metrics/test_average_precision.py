from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import ScoreError
from diptych.evaluation.metrics import pair_ranks
from diptych.evaluation.metrics.average_precision import average_precision_applies, ranks_with_precision
from diptych.evaluation.metrics.ranks import Ranks, ranks
from diptych.evaluation.metrics.recall import mean_metrics, metrics_from_ranks
from diptych.evaluation.metrics.scores import Score, embedding_score, matrix_score
from diptych.evaluation.metrics.significance import bootstrap_intervals
from diptych.evaluation.protocols.retrieval import evaluate_score

TIES = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf])
KINDS = st.sampled_from([np.float16, np.float32, np.float64])


@st.composite
def cases(draw: st.DrawFn):
    """Scores with many ties, one or more groups of any size in any order, and a block."""
    names = draw(st.lists(st.integers(-9, 9), min_size=1, max_size=5, unique=True))
    images = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 4)))]))
    texts = draw(st.permutations([name for name in names for _ in range(draw(st.integers(1, 5)))]))
    count = len(images) * len(texts)
    scores = np.array(draw(st.lists(TIES, min_size=count, max_size=count)), draw(KINDS))
    return scores.reshape(len(images), len(texts)), np.array(images), np.array(texts), draw(st.integers(1, 40))


def slow(scores, query_groups, answer_groups) -> list[float]:
    """Walk down each query's list, negatives first among equals, and note the precision at each positive."""
    found = []
    for row, group in zip(scores.tolist(), query_groups, strict=True):
        listed = sorted(zip(row, answer_groups == group, strict=True), key=lambda answer: (-answer[0], answer[1]))
        right, precisions = 0, []
        for place, (_, is_right) in enumerate(listed, 1):
            right += bool(is_right)
            if is_right:
                precisions.append(Fraction(right, place))
        found.append(float(sum(precisions) / len(precisions)))
    return found


def both(found: Ranks) -> tuple[list[float], list[float]]:
    return found.image_precisions.tolist(), found.text_precisions.tolist()


@settings(max_examples=30)
@given(cases(), st.sampled_from([0, 2, 99]))
def test_precisions_equal_a_walk_down_each_list(case, compared: int):
    scores, images, texts, block = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_ranks, "MAX_COMPARISONS", compared)  # by search, mixed, and by comparison
        found = ranks_with_precision(matrix_score(torch.from_numpy(scores)), images, texts, block=block)
    assert both(found) == (
        pytest.approx(slow(scores, images, texts)),
        pytest.approx(slow(scores.T, texts, images)),
    )
    expected = ranks(matrix_score(torch.from_numpy(scores)), images, texts)
    for name in ("images", "texts", "image_groups", "text_groups", "image_rows", "text_rows"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_mean_average_precision_agrees_with_torchmetrics(torchvision, seed: int):
    from torchmetrics.retrieval import RetrievalMAP  # imports torchvision where that is installed

    generator = torch.Generator().manual_seed(seed)
    images, texts = torch.arange(60) % 20, torch.arange(90) % 20
    positives = images[:, None] == texts
    # a permutation: no ties, which torchmetrics would break by position; from 1 on, because it drops scores below
    scores = 1.0 + torch.randperm(60 * 90, generator=generator).reshape(60, 90)
    scores[positives] += 1500.5
    metrics = metrics_from_ranks(ranks_with_precision(matrix_score(scores), images.numpy(), texts.numpy(), block=999))
    for ours, table, right in (
        (metrics.image_to_text.mean_average_precision, scores, positives),
        (metrics.text_to_image.mean_average_precision, scores.T, positives.T),
    ):
        queries = torch.arange(len(table))[:, None].expand_as(table)
        theirs = RetrievalMAP()(table.flatten(), right.flatten(), indexes=queries.flatten())
        assert ours == pytest.approx(100 * float(theirs), abs=1e-3)
        assert 5 < ours < 95, "at the ends they would agree by chance"


def test_ties_put_negatives_first_and_positives_together():
    # image 0 has two right texts that tie with each other and with one wrong text: places 2 and 3 of 4
    scores = torch.tensor([[0.5, 0.5, 0.5, 0.1], [0.0, 0.0, 1.0, 1.0]])
    found = ranks_with_precision(matrix_score(scores), np.array([0, 1]), np.array([0, 0, 1, 1]))
    assert found.image_precisions.tolist() == pytest.approx([(1 / 2 + 2 / 3) / 2, 1])
    everything_alike = ranks_with_precision(matrix_score(torch.zeros(2, 4)), np.array([0, 1]), np.array([0, 0, 1, 1]))
    assert everything_alike.image_precisions.tolist() == pytest.approx([(1 / 3 + 2 / 4) / 2] * 2)


def test_with_one_positive_it_is_one_over_the_rank():
    scores = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    found = ranks_with_precision(matrix_score(scores), np.arange(20), np.arange(20), block=77)
    assert found.image_precisions.tolist() == pytest.approx((1 / found.images).tolist())
    assert found.text_precisions.tolist() == pytest.approx((1 / found.texts).tolist())


def test_identical_images_are_found_together():
    """Copies of a photo score the same to the last bit: as positives, and as negatives of other groups."""
    generator = torch.Generator().manual_seed(0)
    images, texts = torch.randn(11, 16, generator=generator), torch.randn(12, 16, generator=generator)
    images = images[[0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]]
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]), np.arange(12) % 5
    score = embedding_score(lambda some, others: some @ others.T, images, texts)
    found = ranks_with_precision(score, *groups, block=24)
    scores = score.against(slice(0, 12))(slice(0, 11)).numpy()
    assert both(found)[1] == pytest.approx(slow(scores.T, groups[1], groups[0]))
    assert both(found)[0][0] == both(found)[0][1], "copies in one group find the same"


def test_tiles_are_at_most_a_block_and_every_score_is_requested_once():
    sizes: list[tuple[int, int]] = []
    matrix = torch.randn(90, 120, generator=torch.Generator().manual_seed(0))

    def against(columns):
        def tile(rows):
            sizes.append(tuple(matrix[rows][:, columns].shape))
            return matrix[rows][:, columns]

        return tile

    groups = np.arange(90) // 3, np.arange(120) // 4
    found = ranks_with_precision(Score(90, 120, against), *groups, block=400)
    assert max(rows * columns for rows, columns in sizes) <= 400
    assert sum(rows * columns for rows, columns in sizes) == 90 * 120
    assert both(found)[0] == pytest.approx(slow(matrix.numpy(), *groups))


def test_a_score_that_is_not_a_number_is_named():
    scores = torch.zeros(3, 3)
    scores[1, 2] = torch.nan
    with pytest.raises(ScoreError, match="image 1 and text 2: their score is not a number"):
        ranks_with_precision(matrix_score(scores), np.arange(3), np.arange(3))
    with pytest.raises(ScoreError, match="text 2: no image of its group 7 to find"):
        ranks_with_precision(matrix_score(torch.zeros(2, 3)), np.arange(2), np.array([0, 1, 7]))


def test_selected_rows_are_a_gallery_of_their_own():
    scores = torch.randn(12, 18, generator=torch.Generator().manual_seed(0))
    images, texts, rows = np.arange(12) // 2, np.arange(18) // 3, np.array([3, 2, 9, 8])
    chosen = np.flatnonzero(np.isin(texts, images[rows]))
    found = ranks_with_precision(matrix_score(scores), images, texts, image_rows=rows, text_rows=chosen, block=5)
    part = scores[rows][:, chosen].numpy()
    assert both(found)[0] == pytest.approx(slow(part, images[rows], texts[chosen]))
    assert both(found)[1] == pytest.approx(slow(part.T, texts[chosen], images[rows]))
    assert found.image_rows.tolist() == rows.tolist()


def test_folds_average_it_and_it_is_measured_only_on_request():
    scores = torch.randn(24, 36, generator=torch.Generator().manual_seed(0))
    groups = np.arange(24) // 2, np.arange(36) // 3
    result = evaluate_score(matrix_score(scores), *groups, folds=3, average_precision=True, draws=20)
    parts = [slow(scores[8 * fold :][:8, 12 * fold :][:, :12].T, groups[1][:12], groups[0][:8]) for fold in range(3)]
    assert result.metrics.to_json()["t2i_map"] == pytest.approx(100 * np.mean([np.mean(part) for part in parts]))
    assert {"i2t_map", "t2i_map"} <= set(result.to_json()["intervals"]["bounds"])

    plain = evaluate_score(matrix_score(scores), *groups, folds=3, draws=20)
    assert not any(fold.image_precisions is not None for fold in plain.folds)
    extra = set(result.metrics.to_json()) - set(plain.metrics.to_json())
    assert extra == {"i2t_map", "t2i_map"}
    kept = {name: value for name, value in result.metrics.to_json().items() if name not in extra}
    assert kept == plain.metrics.to_json()
    bounds = {name: bound for name, bound in result.intervals.bounds.items() if name not in extra}
    assert bounds == plain.intervals.bounds, "the draws, and so all other intervals, are the same"


def test_intervals_are_those_of_a_slow_loop_over_drawn_groups():
    random = np.random.default_rng(5)
    groups = random.permutation(np.repeat(np.arange(9), 3)), random.permutation(np.repeat(np.arange(9), 2))
    scores = torch.from_numpy(random.normal(size=(27, 18)))
    folds = [ranks_with_precision(matrix_score(scores), *groups)]
    fast = bootstrap_intervals(folds, cutoffs=[1, 5], level=0.8, draws=30, seed=3).bounds

    draws, drawn = np.random.default_rng(3), []
    for _ in range(30):
        taken = draws.integers(9, size=9)
        values = [folds[0].text_precisions[groups[1] == group] for group in taken]
        drawn.append(100 * np.concatenate(values).mean())
    assert fast["t2i_map"] == pytest.approx((np.quantile(drawn, 0.1), np.quantile(drawn, 0.9)))
    assert list(fast) == ["i2t_r1", "i2t_r5", "i2t_map", "t2i_r1", "t2i_r5", "t2i_map", "rsum"]
    low, high = fast["i2t_map"]
    assert low < mean_metrics([metrics_from_ranks(fold) for fold in folds]).to_json()["i2t_map"] < high


def test_it_applies_if_a_group_has_several_images():
    assert average_precision_applies(np.array([3, 1, 3]))
    assert not average_precision_applies(np.array([3, 1, 2]))
