"""Contrastive matching against a loop written from the equation, and at temperatures where a plain one overflows."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.objectives.contrastive import Contrastive
from diptych.objectives.objective import ScoredPairs


def reference(scores, groups, temperature):
    """Pair by pair, in plain floats: minus the logarithm of the pair's share among itself and its negatives."""
    image_to_text = text_to_image = 0.0
    for k, own in enumerate(groups):
        others = [m for m, group in enumerate(groups) if group != own]
        texts = math.fsum(math.exp((scores[k][m] - scores[k][k]) / temperature) for m in others)
        images = math.fsum(math.exp((scores[m][k] - scores[k][k]) / temperature) for m in others)
        image_to_text += math.log1p(texts) / len(groups)
        text_to_image += math.log1p(images) / len(groups)
    return image_to_text, text_to_image


def scored(scores, groups):
    groups = torch.tensor(groups)
    return ScoredPairs(torch.as_tensor(scores), groups[:, None] == groups[None, :])


@st.composite
def batches(draw):
    pairs = draw(st.integers(1, 6))
    groups = draw(st.lists(st.integers(0, 3), min_size=pairs, max_size=pairs))
    row = st.lists(st.sampled_from([-1.0, 0.0, 0.3]) | st.floats(-1, 1), min_size=pairs, max_size=pairs)
    return draw(st.lists(row, min_size=pairs, max_size=pairs)), groups


@given(batches(), st.sampled_from([0.05, 0.07, 0.5, 2.0]))
def test_value_and_gradient_equal_the_reference(batch, temperature):
    scores, groups = batch
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    loss = Contrastive(temperature=temperature)(scored(leaf, groups))
    expected = reference(scores, groups, temperature)
    assert [term.item() for term in loss.terms.values()] == pytest.approx(expected, abs=1e-9)
    loss.total.backward()
    step = 1e-6
    for row in range(len(groups)):
        for column in range(len(groups)):
            moved = [list(line) for line in scores]
            moved[row][column] += step
            up = sum(reference(moved, groups, temperature))
            moved[row][column] -= 2 * step
            slope = (up - sum(reference(moved, groups, temperature))) / (2 * step)
            assert leaf.grad[row, column].item() == pytest.approx(slope, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.005, 0.001])
def test_a_low_temperature_stays_finite(temperature):
    scores = torch.tensor([[1.0, -1.0], [1.0, -1.0]], requires_grad=True)
    loss = Contrastive(temperature=temperature)(scored(scores, [0, 1])).total
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()
