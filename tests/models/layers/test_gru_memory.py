"""A GRU whose states last: its biases, and how much of the first vector is left after many steps."""

import pytest
import torch
from torch import nn

from diptych.models.layers.gru_memory import remember


def gru(steps=None, hidden=400):
    torch.manual_seed(0)
    made = nn.GRU(hidden, hidden, batch_first=True)
    if steps is not None:
        remember(made, steps)
    return made


def test_only_the_update_gates_are_drawn_for_the_time_scales():
    plain, made = gru(), gru(49)
    for name, value in made.named_parameters():
        before = getattr(plain, name)
        if not name.startswith("bias"):
            assert torch.equal(value, before)
            continue
        (reset, update, new), (old_reset, _, old_new) = value.chunk(3), before.chunk(3)
        assert torch.equal(reset, old_reset)
        assert torch.equal(new, old_new)
        if name.startswith("bias_ih"):
            assert not update.any()
        else:
            steps = update.exp()
            assert steps.min() >= 1
            assert steps.max() <= 48
            assert steps.mean().item() == pytest.approx(24.5, abs=2)


def influence_of_the_first(made, steps):
    """How much the last state depends on the first vector, relative to how much it depends on the last."""
    torch.manual_seed(1)
    vectors = nn.functional.normalize(torch.randn(1, steps, made.input_size), dim=2).requires_grad_()
    made(vectors)[1].sum().backward()
    first, last = vectors.grad[0, 0].norm(), vectors.grad[0, -1].norm()
    return (first / last).item()


def test_the_first_of_many_vectors_still_counts():
    assert influence_of_the_first(gru(), 49) < 1e-6
    assert influence_of_the_first(gru(49), 49) > 0.02


def test_two_steps_are_the_least():
    made = gru(2)
    assert not made.bias_hh_l0.chunk(3)[1].any()  # u is 1, and z is 1/2
