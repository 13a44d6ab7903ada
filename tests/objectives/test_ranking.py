"""Objectives that compute the loss of each query by itself: both directions, sums and means, chunks."""

from typing import ClassVar, Literal

import pytest
import torch

from diptych.data.sampling.extras import Extras
from diptych.objectives.extras import WithinScores
from diptych.objectives.objective import ScoredPairs
from diptych.objectives.ranking import DIRECTIONS, Queries, Ranking

SCORES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 10.0]])
POSITIVES = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])


class Total(Ranking):
    """The sum of each query's scores minus three times that of its positive."""

    name: Literal["total"] = "total"

    def per_query_loss(self, queries):
        return queries.scores.sum(1) - 3 * queries.positive_scores[:, 0]

    def has_collapsed(self, batch, total):
        return False


class Hardest(Total):
    """The highest score of each query, which tells the two directions apart."""

    def per_query_loss(self, queries):
        return queries.scores.amax(1)


class MeanTotal(Total):
    is_mean: ClassVar[bool] = True


class Rows:
    """The queries of a batch, a few at a time; remembers which were asked for."""

    def __init__(self, batch):
        self.batch, self.asked = batch, []

    def __len__(self):
        return len(self.batch.scores)

    def queries(self, direction, rows):
        self.asked.append((direction, rows.tolist()))
        scores = self.batch.scores if direction == "image_to_text" else self.batch.scores.t()
        return Queries(scores[rows], rows, self.batch.positives[rows])


def test_queries_know_the_column_of_their_own_pair():
    queries = Queries(SCORES[1:], torch.tensor([1, 2]), POSITIVES[1:])
    assert queries.positive_scores.tolist() == [[5.0], [10.0]]
    assert queries.is_positive_column.tolist() == [[False, True, False], [False, False, True]]


def test_images_look_among_texts_and_texts_among_images():
    loss = Total().loss(ScoredPairs(SCORES, POSITIVES))
    assert list(loss.terms) == list(DIRECTIONS) == ["image_to_text", "text_to_image"]
    assert loss.terms["image_to_text"].item() == SCORES.sum() - 3 * SCORES.trace()
    assert not loss.is_mean
    hardest = Hardest().loss(ScoredPairs(SCORES, POSITIVES))
    assert {name: term.item() for name, term in hardest.terms.items()} == {
        "image_to_text": 3.0 + 6.0 + 10.0,
        "text_to_image": 7.0 + 8.0 + 10.0,
    }


def test_a_mean_is_a_sum_divided_by_the_number_of_pairs():
    total, mean = (objective.loss(ScoredPairs(SCORES, POSITIVES)) for objective in (Total(), MeanTotal()))
    assert mean.is_mean
    for name, term in total.terms.items():
        assert mean.terms[name].item() == pytest.approx(term.item() / 3)


@pytest.mark.parametrize("objective", [Total(), MeanTotal()], ids=["sum", "mean"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_chunks_add_up_to_the_whole(objective, size):
    batch, shares = ScoredPairs(SCORES, POSITIVES), []
    source, chunks = Rows(batch), torch.split(torch.arange(3), size)
    loss = objective.chunked_loss(source, chunks, lambda share: shares.append(share) or share)
    whole = objective.loss(batch)
    assert loss.is_mean == whole.is_mean
    for name, term in whole.terms.items():
        assert loss.terms[name].item() == pytest.approx(term.item())
    assert source.asked == [(direction, rows.tolist()) for direction in DIRECTIONS for rows in chunks]
    assert len(shares) == 2 * len(chunks)


def test_each_direction_sees_the_scores_within_its_own_side():
    seen = []

    class Spy(Total):
        def per_query_loss(self, queries):
            seen.append((queries.within, queries.positives, queries.parameters))
            return super().per_query_loss(queries)

    images, texts, parameters = SCORES + 20, SCORES + 40, {"scale": torch.tensor(2.0)}
    Spy().loss(ScoredPairs(SCORES, POSITIVES, Extras(WithinScores(images, texts)), parameters))
    Spy().loss(ScoredPairs(SCORES, POSITIVES))
    assert seen[0][0] is images
    assert seen[1][0] is texts
    assert seen[2][0] is seen[3][0] is None
    assert torch.equal(seen[1][1], POSITIVES.t())
    assert seen[0][2] is seen[1][2] is parameters
