"""Softmax over classes against the equation in decimal numbers, and by the block against all at once."""

import math
from decimal import Context, Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.objectives.softmax import class_losses

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def problem(items, classes, size, seed, dtype=torch.float64, scale=1.0, bias=True, correction=True):
    """Features, weight, bias, labels and correction; the labels are any."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)

    features, weight = numbers(items, size), numbers(classes, size)
    offsets = [numbers(classes) if there else None for there in (bias, correction)]
    return features, weight, offsets[0], torch.randint(classes, (items,), generator=generator), offsets[1]


def answers(features, weight, bias, labels, correction, at_once):
    """Losses, wrong, and the gradients of a weighted sum of the losses in all that is learned."""
    learned = [None if each is None else each.clone().requires_grad_() for each in (features, weight, bias)]
    losses, wrong = class_losses(*learned, labels, correction, at_once)
    (losses * torch.linspace(0.5, 2, len(losses), dtype=losses.dtype)).sum().backward()
    return losses.detach(), wrong, [each.grad for each in learned if each is not None]


def exact(features, weight, bias, labels, correction):
    """The equation as it stands, in decimal numbers."""
    found = []
    with localcontext(Context(prec=40)):
        for vector, label in zip(features.tolist(), labels.tolist(), strict=True):
            logits = []
            for number, row in enumerate(weight.tolist()):
                logit = sum((Decimal(a) * Decimal(b) for a, b in zip(vector, row, strict=True)), Decimal(0))
                logits.append(
                    logit + sum(Decimal(each[number].item()) for each in (bias, correction) if each is not None)
                )
            found.append(-(logits[label].exp() / sum(logit.exp() for logit in logits)).ln())
    return [float(each) for each in found]


problems = st.fixed_dictionaries(
    {
        "items": st.integers(1, 6),
        "classes": st.integers(1, 9),
        "size": st.integers(1, 4),
        "seed": st.integers(0, 2**16),
        "bias": st.booleans(),
        "correction": st.booleans(),
    }
)


@settings(max_examples=40)
@given(problems, st.none() | st.integers(1, 12))
def test_losses_equal_the_equation(shape, at_once):
    features, weight, bias, labels, correction = problem(**shape)
    losses, wrong = class_losses(features, weight, bias, labels, correction, at_once)
    assert losses.tolist() == pytest.approx(exact(features, weight, bias, labels, correction), rel=1e-12, abs=1e-14)
    assert losses.shape == wrong.shape == labels.shape
    assert wrong.dtype == torch.bool


@settings(max_examples=30)
@given(
    problems, st.integers(1, 12), st.sampled_from([torch.float64, torch.float32]), st.sampled_from([1e-3, 1.0, 60.0])
)
def test_blocks_equal_all_at_once_in_value_and_gradient(shape, at_once, dtype, scale):
    given_ = problem(**shape, dtype=dtype, scale=scale)
    whole, wrong, slopes = answers(*given_, at_once=None)
    losses, wrong_of_blocks, slopes_of_blocks = answers(*given_, at_once=at_once)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(losses, whole, rtol=tolerance, atol=tolerance * max(1, scale**2))
    assert torch.equal(wrong, wrong_of_blocks)
    for one, other in zip(slopes_of_blocks, slopes, strict=True):
        # The probabilities of large logits have the digits that those leave over.
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * max(1, scale**3))


@settings(max_examples=15, deadline=None)
@given(problems, st.integers(1, 12))
def test_gradients_equal_differences(shape, at_once):
    features, weight, bias, labels, correction = problem(**shape)
    learned = [each.requires_grad_() for each in (features, weight, bias, correction) if each is not None]

    def losses(*given_):
        rest = list(given_[2:])
        first = rest.pop(0) if bias is not None else None
        second = rest.pop(0) if correction is not None else None
        return class_losses(given_[0], given_[1], first, labels, second, at_once)[0]

    assert torch.autograd.gradcheck(losses, learned)


@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_only_what_learns_has_a_gradient(at_once):
    features, weight, bias, labels, _ = problem(3, 5, 2, 0)
    weight.requires_grad_()
    losses, wrong = class_losses(features, weight, bias, labels, at_once=at_once)
    losses.sum().backward()
    assert weight.grad is not None
    assert features.grad is None
    assert bias.grad is None
    assert not wrong.requires_grad


@pytest.mark.parametrize("at_once", [None, 1, 2, 3])
def test_a_tie_is_wrong(at_once):
    # Item by class: beaten, tied, first, first by the correction alone.
    features = torch.eye(4)
    weight = torch.tensor([[1.0, 2, 3, 1], [2, 2, 1, 0], [0, 1, 1, 1]])
    correction = torch.tensor([0.0, 0, 0])
    wrong = class_losses(features, weight, None, torch.tensor([0, 0, 0, 2]), correction, at_once)[1]
    assert wrong.tolist() == [True, True, False, True]
    correction[2] = 0.5
    wrong = class_losses(features, weight, None, torch.tensor([0, 0, 0, 2]), correction, at_once)[1]
    assert wrong.tolist() == [True, True, False, False]


@pytest.mark.parametrize("at_once", [None, 1])
def test_the_only_class_is_right_and_costs_nothing(at_once):
    losses, wrong = class_losses(
        torch.ones(2, 3), torch.ones(1, 3), None, torch.zeros(2, dtype=torch.long), None, at_once
    )
    assert losses.tolist() == [0, 0]
    assert wrong.tolist() == [False, False]


@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_logits_of_ten_thousand(at_once):
    weight = torch.tensor([[1e4], [1e4], [-1e4], [0.0]], requires_grad=True)
    losses, wrong = class_losses(torch.ones(3, 1), weight, None, torch.tensor([0, 2, 3]), None, at_once)
    losses.sum().backward()
    # Two classes share what there is, to the last digits even where the logits have none to spare.
    assert losses.tolist() == pytest.approx([math.log(2), 2e4 + math.log(2), 1e4 + math.log(2)], rel=1e-7)
    assert wrong.tolist() == [True, True, True]
    assert weight.grad.squeeze(1).tolist() == pytest.approx([0.5, 1.5, -1, -1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("at_once", [None, 3])
def test_half_precision_is_computed_in_single(dtype, at_once):
    given_ = problem(5, 11, 4, 3, dtype=dtype, scale=100.0)  # logits beyond 65,504 among them
    losses, wrong, slopes = answers(*given_, at_once=at_once)
    single = [each.float() if each.is_floating_point() else each for each in given_]
    expected, expected_wrong, expected_slopes = answers(*single, at_once=at_once)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, expected)
    assert torch.equal(wrong, expected_wrong)
    for one, other in zip(slopes, expected_slopes, strict=True):
        assert one.dtype == dtype
        assert torch.equal(one, other.to(dtype))


def test_blocks_hold_no_logits_of_all_classes():
    """The largest tensor made, forward and backward, is a block or the gradient of the weight."""

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor):
                self.elements = max(self.elements, made.numel())
            return made

    items, classes, size, at_once = 64, 1000, 2, 10
    features, weight, bias, labels, correction = problem(items, classes, size, 0)
    weight.requires_grad_()
    sizes = []
    for blocks in (None, at_once):
        with Largest() as largest:
            class_losses(features.requires_grad_(), weight, bias, labels, correction, blocks)[0].sum().backward()
        sizes.append(largest.elements)
    assert sizes == [items * classes, classes * size]
