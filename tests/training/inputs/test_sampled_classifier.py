"""Sampled softmax: what is drawn, and training on drawn rows against training on all of them."""

import math
from collections import Counter
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, linear
from torch.optim import SGD, Adam

from diptych.errors import RecipeError
from diptych.objectives.softmax import class_losses
from diptych.training.inputs import sampled_classifier
from diptych.training.inputs.sampled_classifier import SampledClassifier

CLASSES, SIZE = 12, 3
OPTIMISERS = {
    "sgd": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "fused sgd": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda parameters: Adam(parameters, lr=0.1),
    "fused adam": lambda parameters: Adam(parameters, lr=0.1, fused=True),
    "plain sgd": lambda parameters: SGD(parameters, lr=0.1),
}
any_optimiser = pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)


def tables(classes=CLASSES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "classifier": torch.randn(classes, SIZE, generator=generator),
        "classifier_bias": torch.randn(classes, generator=generator),
    }


def batches(count, classes=CLASSES, pairs=4):
    """Features and labels of some steps."""
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(pairs, SIZE, generator=generator), torch.randint(classes, (pairs,), generator=generator))
        for _ in range(count)
    ]


def train(sampled, optimiser, steps):
    losses = []
    for features, labels in steps:
        optimiser.zero_grad()
        rows, correction = sampled.draw(labels)
        sampled.load(optimiser)
        weight, bias = sampled.rows["classifier"], sampled.rows["classifier_bias"]
        loss = class_losses(features, weight, bias, rows, correction)[0].mean()
        loss.backward()
        optimiser.step()
        sampled.store(optimiser)
        losses.append(loss.item())
    return losses


@any_optimiser
@pytest.mark.parametrize("drawn", [CLASSES, CLASSES + 5])
def test_with_every_class_drawn_it_is_dense_training(make, drawn):
    weight, bias = (table.requires_grad_() for table in tables().values())
    dense, expected = make([weight, bias]), []
    for features, labels in batches(6):
        dense.zero_grad()
        loss = cross_entropy(linear(features, weight, bias), labels, reduction="none").mean()
        loss.backward()
        dense.step()
        expected.append(loss.item())
    sampled = SampledClassifier(tables(), drawn)
    assert train(sampled, make(sampled.rows.values()), batches(6)) == expected
    assert torch.equal(sampled.tables["classifier"], weight)
    assert torch.equal(sampled.tables["classifier_bias"], bias)


@any_optimiser
def test_only_drawn_rows_move(make):
    torch.manual_seed(0)
    sampled = SampledClassifier(tables(), 6)
    optimiser = make(sampled.rows.values())
    train(sampled, optimiser, batches(3))
    for features, labels in batches(10):
        before = {name: table.clone() for name, table in sampled.tensors().items()}
        assert all(table.shape == before[name.split(".")[0]].shape for name, table in before.items())
        train(sampled, optimiser, [(features, labels)])
        moved = [(before[name] != table).view(CLASSES, -1).any(1) for name, table in sampled.tensors().items()]
        for one in moved:
            assert one.sum() <= 6
            assert torch.equal(one, moved[0])  # its momentum moves with a row
        assert moved[0][labels].all()


def test_a_row_and_its_momentum_are_those_of_its_own_steps():
    """Each class as if it were trained alone, on the steps that drew it."""
    torch.manual_seed(0)
    start = tables()["classifier"]
    sampled = SampledClassifier({"classifier": start.clone()}, 5)
    optimiser = SGD(sampled.rows.values(), lr=0.1, momentum=0.9, fused=True)
    value, momentum = start.double(), torch.zeros(CLASSES, SIZE, dtype=torch.float64)
    for _, labels in batches(20):
        optimiser.zero_grad()
        rows = sampled.draw(labels)[0]
        sampled.load(optimiser)
        (sampled.rows["classifier"] * torch.arange(5.0)[:, None]).sum().backward()  # the gradient is the row's number
        drawn = [
            int((sampled.tables["classifier"] == row).all(1).nonzero()) for row in sampled.rows["classifier"].detach()
        ]
        assert [drawn[row] for row in rows] == labels.tolist()
        for number, label in enumerate(drawn):
            momentum[label] = 0.9 * momentum[label] + number
            value[label] -= 0.1 * momentum[label]
        optimiser.step()
        sampled.store(optimiser)
        torch.testing.assert_close(sampled.tables["classifier"].double(), value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sampled.tensors()["classifier.momentum_buffer"].double(), momentum, rtol=1e-5, atol=1e-5)


@any_optimiser
def test_a_resumed_training_ends_the_same(make):
    steps = batches(8)
    torch.manual_seed(0)
    whole = SampledClassifier(tables(), 6)
    losses = train(whole, make(whole.rows.values()), steps)

    torch.manual_seed(0)
    first = SampledClassifier(tables(), 6)
    optimiser = make(first.rows.values())
    before = train(first, optimiser, steps[:3])
    kept = {name: table.clone() for name, table in first.tensors().items()}
    state, random = optimiser.state_dict(), torch.get_rng_state()

    second = SampledClassifier(tables(seed=7), 6)
    optimiser = make(second.rows.values())
    optimiser.load_state_dict(state)
    torch.manual_seed(99)
    second.restore(kept)
    torch.set_rng_state(random)
    assert before + train(second, optimiser, steps[3:]) == losses
    assert set(second.tensors()) == set(whole.tensors())
    for name, table in whole.tensors().items():
        assert torch.equal(second.tensors()[name], table), name
    assert all(torch.equal(table, first.tensors()[name]) for name, table in kept.items())  # not shared


@given(
    st.integers(1, 60), st.integers(1, 70), st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.integers(0, 99)
)
def test_any_draw(classes, wanted, numbers, seed):
    torch.manual_seed(seed)
    labels = torch.tensor([number % classes for number in numbers])
    own = set(labels.tolist())
    sampled = SampledClassifier({"classifier": torch.arange(classes, dtype=torch.float32)[:, None]}, wanted)
    optimiser = SGD(sampled.rows.values(), lr=1)
    count = min(wanted, classes)
    if count < len(own) or (count == len(own) < classes):
        words = rf"objective.sampled = {count}: a batch has {len(own)} classes .*; set more than {len(own)}, or lower"
        with pytest.raises(RecipeError, match=words):
            sampled.draw(labels)
        return
    rows, correction = sampled.draw(labels)
    sampled.load(optimiser)
    drawn = sampled.rows["classifier"].squeeze(1).int().tolist()
    assert len(drawn) == len(set(drawn)) == len(correction) == count
    assert [drawn[row] for row in rows] == labels.tolist()
    for number, added in zip(drawn, correction.tolist(), strict=True):
        share = 1 if number in own else (classes - len(own)) / (count - len(own))
        assert added == pytest.approx(math.log(share), abs=1e-6)


@settings(max_examples=4)
@given(st.integers(0, 1000))
def test_the_sum_of_exponentials_is_right_on_average(seed):
    torch.manual_seed(seed)
    sampled = SampledClassifier({"classifier": torch.randn(30, 1)}, 8)
    optimiser = SGD(sampled.rows.values(), lr=1)
    labels = torch.tensor([4, 29, 4, 0])
    sums = []
    for _ in range(800):
        _, correction = sampled.draw(labels)
        sampled.load(optimiser)
        sums.append((sampled.rows["classifier"].detach().squeeze(1) + correction).exp().sum())
    found = torch.stack(sums)
    expected = sampled.tables["classifier"].exp().sum()
    assert abs(found.mean() - expected) < 5 * found.std() / len(found) ** 0.5


def gradient_errors(monkeypatch, wanted):
    """The relative errors of the gradient by the features, averaged over all possible draws: weighted and unweighted.

    The batch has one of nine classes, whose logit is the highest.
    """
    classifier = torch.randn(9, SIZE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    features = 2 * classifier[4:5].clone().requires_grad_()
    label = torch.tensor([4])
    assert linear(features, classifier).argmax() == 4
    [exact] = torch.autograd.grad(class_losses(features, classifier, None, label)[0].sum(), features)
    sampled = SampledClassifier({"classifier": classifier}, wanted)
    optimiser = SGD(sampled.rows.values(), lr=1)
    errors, sums = {}, []
    for weighted in (True, False):
        gradients = []
        for chosen in combinations(range(8), wanted - 1):
            monkeypatch.setattr(sampled_classifier, "_distinct", lambda *_, chosen=chosen: torch.tensor(chosen))
            row, correction = sampled.draw(label)
            sampled.load(optimiser)
            rows, added = sampled.rows["classifier"].detach(), correction if weighted else torch.zeros(wanted)
            gradients += torch.autograd.grad(class_losses(features, rows, None, row, added)[0].sum(), features)
            sums.append((linear(features.detach(), rows) + added).exp().sum())
        errors[weighted] = ((torch.stack(gradients).mean(0) - exact).norm() / exact.norm()).item()
    weighted_sums = torch.stack(sums[: len(sums) // 2])
    torch.testing.assert_close(
        weighted_sums.mean(), linear(features.detach(), classifier).exp().sum(), rtol=1e-6, atol=0
    )
    return errors[True], errors[False]


def test_the_gradient_is_biased_and_less_so_with_weights_and_with_more_classes(monkeypatch):
    """What the module's docstring says; the sum of the exponentials is unbiased in all of them."""
    two, five, eight = (gradient_errors(monkeypatch, wanted) for wanted in (2, 5, 8))
    assert two[0] > 0.02
    assert two[0] > five[0] > eight[0] > 0.0001
    for weighted, unweighted in (two, five, eight):
        assert weighted < 0.7 * unweighted
    assert gradient_errors(monkeypatch, 9) == pytest.approx((0, 0), abs=1e-9)  # all classes


@pytest.mark.parametrize("wanted", [2, 4], ids=["by rejection", "by permutation"])
def test_every_set_is_as_likely(wanted):
    """The others of 7 classes, one of them the batch's: each set of 2 or of 4 of 6, by chi-squared."""
    torch.manual_seed(0)
    sampled = SampledClassifier({"classifier": torch.arange(7.0)[:, None]}, wanted + 1)
    optimiser = SGD(sampled.rows.values(), lr=1)
    counts = Counter()
    for _ in range(3000):
        row = sampled.draw(torch.tensor([3]))[0].item()
        sampled.load(optimiser)
        drawn = sampled.rows["classifier"].squeeze(1).int().tolist()
        assert drawn.pop(row) == 3
        counts[tuple(drawn)] += 1
    sets = list(combinations([0, 1, 2, 4, 5, 6], wanted))
    assert set(counts) == set(sets)
    expected = 3000 / len(sets)
    assert sum((counts[each] - expected) ** 2 / expected for each in sets) < 36.1  # 14 degrees of freedom, p = 0.001


def test_a_draw_makes_nothing_as_large_as_all_classes():
    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            for each in made if isinstance(made, tuple) else [made]:
                self.elements = max(self.elements, each.numel() if isinstance(each, torch.Tensor) else 0)
            return made

    sampled = SampledClassifier({"classifier": torch.zeros(100_000, 1)}, 50)
    with Largest() as largest:
        sampled.draw(torch.arange(20) * 5000)
    assert 0 < largest.elements < 200
