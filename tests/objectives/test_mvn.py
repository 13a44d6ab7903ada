"""The baseline with negatives of both modalities, against its equations in decimal numbers, from the embeddings on."""

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.sampling.extras import Extras
from diptych.errors import RecipeError
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.extras import WithinScores
from diptych.objectives.mvn import MVN
from diptych.objectives.objective import ObjectiveContext, ScoredPairs
from diptych.training.recipe_loader import load_recipe

DIGITS = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)


def share(own, others, temperature):
    """The pair's share among itself and its negatives."""
    total = sum(((other / temperature).exp() for other in others), (own / temperature).exp())
    return (own / temperature).exp() / total


def dot(one, other):
    return sum((a * b for a, b in zip(one, other, strict=True)), Decimal(0))


def reference(images, texts, groups, temperature):
    """For each pair (image k, text k): the other texts and the other images, those of its group left out."""
    with localcontext(DIGITS):
        images, texts = ([[Decimal(value) for value in row] for row in side] for side in (images, texts))
        temperature, pairs = Decimal(temperature), len(groups)
        image_to_text = text_to_image = Decimal(0)
        for k in range(pairs):
            others = [m for m in range(pairs) if groups[m] != groups[k]]
            own = dot(images[k], texts[k])
            of_image = [dot(images[k], texts[m]) for m in others] + [dot(images[k], images[m]) for m in others]
            of_text = [dot(images[m], texts[k]) for m in others] + [dot(texts[m], texts[k]) for m in others]
            image_to_text -= share(own, of_image, temperature).ln() / pairs
            text_to_image -= share(own, of_text, temperature).ln() / pairs
        return image_to_text, text_to_image


def slopes(sides, groups, temperature):
    """The derivative of the loss by every number of every embedding."""
    small, found = Decimal("1e-20"), []
    with localcontext(DIGITS):
        for side in range(2):
            for row in range(len(groups)):
                for column in range(len(sides[side][row])):
                    ends = []
                    for move in (small, -small):
                        moved = [[[Decimal(value) for value in line] for line in rows] for rows in sides]
                        moved[side][row][column] += move
                        ends.append(sum(reference(*moved, groups, temperature)))
                    found.append(float((ends[0] - ends[1]) / (2 * small)))
    return torch.tensor(found, dtype=torch.float64)


def scored(images, texts, groups, **named):
    numbers = torch.tensor(groups)
    within = WithinScores(images @ images.T, texts @ texts.T)
    return ScoredPairs(images @ texts.T, numbers[:, None] == numbers[None, :], Extras(within), **named)


@st.composite
def batches(draw, most=5):
    groups = draw(st.lists(st.integers(0, 3), min_size=1, max_size=most))
    row = st.lists(st.sampled_from([-1.0, 0.0, 0.5]) | st.floats(-1, 1), min_size=2, max_size=2)
    sides = [draw(st.lists(row, min_size=len(groups), max_size=len(groups))) for _ in range(2)]
    return sides, groups


@settings(max_examples=30)
@given(batches(), st.sampled_from([0.005, 0.1, 2.0]))
def test_values_equal_the_equations(batch, temperature):
    sides, groups = batch
    loss = MVN(temperature=temperature).loss(scored(*(torch.tensor(side).double() for side in sides), groups))
    assert list(loss.terms) == ["image_to_text", "text_to_image"]
    assert loss.is_mean
    expected = [
        float(term) for term in reference(*(torch.tensor(side).tolist() for side in sides), groups, temperature)
    ]
    assert [term.item() for term in loss.terms.values()] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=15)
@given(batches(4), st.sampled_from([0.02, 0.1, 2.0]))
def test_gradients_equal_the_slopes_of_the_equations(batch, temperature):
    sides, groups = batch
    leaves = [torch.tensor(side, dtype=torch.float64, requires_grad=True) for side in sides]
    MVN(temperature=temperature).loss(scored(*leaves, groups)).total.backward()
    found = torch.cat([leaf.grad.flatten() for leaf in leaves])
    torch.testing.assert_close(found, slopes(sides, groups, temperature), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("groups", "negatives"), [(range(5), 8), ([0, 0, 1, 1], 4), ([0], 0), ([3, 3, 3], 0)])
def test_equal_embeddings_count_the_negatives(groups, negatives):
    # 2 (N - 1) negatives for each anchor where every pair is of a group of its own
    same = torch.full((len(groups), 3), 0.5)
    for term in MVN(temperature=0.1).loss(scored(same, same, list(groups))).terms.values():
        assert term.item() == pytest.approx(math.log(1 + negatives), abs=1e-5)


def test_a_batch_without_negatives_moves_nothing():
    leaves = [torch.rand(3, 2, generator=torch.Generator().manual_seed(0), requires_grad=True) for _ in range(2)]
    loss = MVN(temperature=0.005).loss(scored(*leaves, [1, 1, 1])).total
    loss.backward()
    assert loss.item() == 0
    assert all((leaf.grad == 0).all() for leaf in leaves)


def test_what_belongs_together_is_pushed_apart_in_no_modality():
    siblings = torch.tensor([[False, False, True], [False, False, False], [True, False, False]])
    random = torch.Generator().manual_seed(0)
    scores, images, texts = (torch.rand(3, 3, generator=random).requires_grad_() for _ in range(3))
    positives = siblings | torch.eye(3, dtype=torch.bool)
    MVN().loss(ScoredPairs(scores, positives, Extras(WithinScores(images, texts)))).total.backward()
    assert (scores.grad[siblings] == 0).all()
    for same in (images, texts):
        assert (same.grad[positives] == 0).all()  # nor is an embedding pushed away from itself
    image_to_text = (
        MVN().loss(ScoredPairs(scores, positives, Extras(WithinScores(images, texts)))).terms["image_to_text"]
    )
    assert (torch.autograd.grad(image_to_text, images)[0][~positives] > 0).all()


def test_without_negatives_of_its_own_modality_it_is_contrastive():
    random = torch.Generator().manual_seed(0)
    scores, positives = torch.rand(4, 4, generator=random), torch.eye(4, dtype=torch.bool)
    far = torch.full((4, 4), -1e4)
    ours = MVN(temperature=0.1).loss(ScoredPairs(scores, positives, Extras(WithinScores(far, far))))
    theirs = Contrastive(temperature=0.1).loss(ScoredPairs(scores, positives))
    for name, term in ours.terms.items():
        torch.testing.assert_close(term, theirs.terms[name])
    near = MVN(temperature=0.1).loss(ScoredPairs(scores, positives, Extras(WithinScores(scores, scores))))
    assert near.total > ours.total


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("temperature", [0.005, 1e-4])
def test_low_temperatures_stay_finite_and_right_in_low_precision(temperature, dtype):
    # Inner products of these are exact in half precision.
    for sides in (
        [[[1.0, 0.0], [-1.0, 0.0]], [[-1.0, 0.0], [1.0, 0.0]]],
        [[[1.0, 0.0], [0.5, 0.5], [0.25, -0.5]], [[0.5, 0.25], [-0.75, 0.5], [1.0, 0.0]]],
    ):
        images, texts = (torch.tensor(side, dtype=dtype) for side in sides)
        plain = scored(images, texts, list(range(len(images))))
        same = plain.extras[WithinScores]
        within = WithinScores(same.images.requires_grad_(), same.texts.requires_grad_())
        batch = ScoredPairs(plain.scores.requires_grad_(), plain.positives, Extras(within))
        loss = MVN(temperature=temperature).loss(batch).total
        assert loss.dtype == torch.float32
        expected = float(sum(reference(*sides, list(range(len(images))), temperature)))
        assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-4)
        loss.backward()
        assert all(leaf.grad.isfinite().all() for leaf in (batch.scores, within.images, within.texts))


@settings(max_examples=15)
@given(batches(4), st.sampled_from([0.02, 0.1, 1.0]))
def test_the_gradient_of_a_learned_temperature_is_the_slope_of_the_equations(batch, temperature):
    sides, groups = batch
    objective = MVN(temperature=temperature, learn_temperature=True)
    learned = {
        name: value.double().requires_grad_()
        for name, value in objective.initial_parameters(ObjectiveContext()).items()
    }
    leaves = [torch.tensor(side, dtype=torch.float64) for side in sides]
    objective.loss(scored(*leaves, groups, parameters=learned)).total.backward()
    logarithm = learned["log_temperature"].item()
    ends = [float(sum(reference(*sides, groups, math.exp(logarithm + move)))) for move in (1e-5, -1e-5)]
    assert learned["log_temperature"].grad.item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("temperature=0.0", r"stage\.1\.objective: temperature = 0\.0"),
        ("temperature=-1", r"stage\.1\.objective: temperature = -1"),
        ("margin=0.2", r"unknown key 'margin'"),
        ("negatives=max", r"unknown key 'negatives'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(change, message):
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe("vsepp", ["stage.1.objective={name='mvn'}", f"stage.1.objective.{change}"])
    assert "\n" not in str(caught.value)
