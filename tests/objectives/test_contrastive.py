"""Contrastive matching against the paper's equations as they stand, in decimal numbers, which do not overflow."""

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.objectives.contrastive import Contrastive
from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import ObjectiveContext, ScoredPairs
from diptych.training.recipe_loader import load_recipe

DIGITS = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)
SUM = {"negatives": "sum"}
MAX = {"negatives": "max"}
MARGIN = {"negatives": "max", "margin": 0.205}
VARIANTS = [SUM, MAX, MARGIN]
NAMES = ["sum", "max", "max with margin"]


def cost(own, others, temperature, negatives, margin=None):
    """Eq. 7, 10 or 13 of one query: its own score, and those of its negatives, of which there may be none."""
    if negatives == "sum":
        total = sum(((other / temperature).exp() for other in others), (own / temperature).exp())
        return -((own / temperature).exp() / total).ln()
    if not others:
        return Decimal(0)
    if margin is None:
        return -((own / temperature).exp() / (max(others) / temperature).exp()).ln()
    return max(Decimal(0), -((own / temperature).exp() / ((max(others) + Decimal(margin)) / temperature).exp()).ln())


def reference(scores, positives, temperature, **variant):
    """The mean of l^I and that of l^C over the pairs; `positives[k][m]` are no negatives."""
    with localcontext(DIGITS):
        pairs, temperature = len(scores), Decimal(temperature)
        scores = [[Decimal(score) for score in row] for row in scores]
        texts = images = Decimal(0)
        for k in range(pairs):
            other_texts = [scores[k][m] for m in range(pairs) if not positives[k][m]]
            other_images = [scores[m][k] for m in range(pairs) if not positives[m][k]]
            texts += cost(scores[k][k], other_texts, temperature, **variant)
            images += cost(scores[k][k], other_images, temperature, **variant)
        return texts / pairs, images / pairs


def slopes(scores, positives, temperature, **variant):
    """The derivative of the sum of both by each score: differences so small that 50 digits are needed."""
    small, found = Decimal("1e-20"), []
    with localcontext(DIGITS):
        for row in range(len(scores)):
            for column in range(len(scores)):
                ends = []
                for move in (small, -small):
                    moved = [[Decimal(score) for score in line] for line in scores]
                    moved[row][column] += move
                    ends.append(sum(reference(moved, positives, temperature, **variant)))
                found.append(float((ends[0] - ends[1]) / (2 * small)))
    return torch.tensor(found, dtype=torch.float64).view(len(scores), -1)


def same_group(groups):
    return [[one == other for other in groups] for one in groups]


def scored(scores, positives, **named):
    return ScoredPairs(torch.as_tensor(scores), torch.tensor(positives), **named)


@st.composite
def masks(draw, most):
    """Groups with repeats, or any mask with the diagonal in it: then a query may be left without a negative."""
    pairs = draw(st.integers(1, most))
    if draw(st.booleans()):
        return same_group(draw(st.lists(st.integers(0, 3), min_size=pairs, max_size=pairs)))
    row = st.lists(st.booleans(), min_size=pairs, max_size=pairs)
    rows = draw(st.lists(row, min_size=pairs, max_size=pairs))
    return [[k == m or rows[k][m] for m in range(pairs)] for k in range(pairs)]


@st.composite
def batches(draw, most=6):
    """Any scores, ties among them."""
    positives = draw(masks(most))
    pairs = len(positives)
    row = st.lists(st.sampled_from([-1.0, 0.0, 0.3]) | st.floats(-1, 1), min_size=pairs, max_size=pairs)
    return draw(st.lists(row, min_size=pairs, max_size=pairs)), positives


@st.composite
def distinct(draw):
    """Scores without ties, and none at a margin of 0.205 from another: there, every loss has a gradient."""
    positives = draw(masks(4))
    pairs = len(positives)
    values = draw(st.lists(st.integers(-100, 100), min_size=pairs**2, max_size=pairs**2, unique=True))
    return [[value / 100 for value in values[k * pairs : (k + 1) * pairs]] for k in range(pairs)], positives


@given(batches(), st.sampled_from([0.005, 0.05, 0.5, 2.0]), st.sampled_from(VARIANTS))
def test_values_equal_the_equations(batch, temperature, variant):
    loss = Contrastive(temperature=temperature, **variant).loss(scored(torch.tensor(batch[0]).double(), batch[1]))
    assert list(loss.terms) == ["image_to_text", "text_to_image"]
    assert loss.is_mean
    expected = [float(term) for term in reference(torch.tensor(batch[0]).tolist(), batch[1], temperature, **variant)]
    assert [term.item() for term in loss.terms.values()] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert loss.total.item() == pytest.approx(sum(expected), rel=1e-9, abs=1e-9)


@settings(max_examples=20)
@given(distinct(), st.sampled_from([0.005, 0.07, 1.0]), st.sampled_from(VARIANTS))
def test_gradients_equal_the_slopes_of_the_equations(batch, temperature, variant):
    scores = torch.tensor(batch[0], dtype=torch.float64, requires_grad=True)
    Contrastive(temperature=temperature, **variant).loss(scored(scores, batch[1])).total.backward()
    torch.testing.assert_close(scores.grad, slopes(*batch, temperature, **variant), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_texts_of_one_image_are_never_negatives(variant):
    groups = [0, 1, 0, 2, 0]
    siblings = torch.tensor(same_group(groups)) & ~torch.eye(5, dtype=torch.bool)
    scores = torch.rand(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    objective = Contrastive(temperature=0.1, **variant)
    best = scores.masked_fill(siblings, 100.0).requires_grad_()  # would be the hardest by far
    loss = objective.loss(scored(best, same_group(groups))).total
    loss.backward()
    assert loss.item() == objective.loss(scored(scores, same_group(groups))).total.item()
    assert (best.grad[siblings] == 0).all()
    assert (best.grad != 0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_a_batch_without_negatives_costs_and_moves_nothing(variant, dtype):
    scores = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    loss = Contrastive(temperature=0.01, **variant).loss(scored(scores, same_group([4, 4, 4]))).total
    loss.backward()
    assert loss.item() == 0
    assert (scores.grad == 0).all()


def test_a_query_without_negatives_adds_nothing_to_those_that_have_some():
    mask = [[True, True, True], [False, True, False], [False, False, True]]  # no text is a negative of image 0
    for variant in VARIANTS:
        scores = torch.tensor([[0.1, 0.9, 0.8], [0.3, 0.2, 0.5], [0.7, 0.6, 0.4]], requires_grad=True)
        terms = Contrastive(**variant).loss(scored(scores, mask)).terms
        terms["image_to_text"].backward()
        assert terms["image_to_text"].isfinite()
        assert (scores.grad[0] == 0).all()
        assert (scores.grad[1:] != 0).any()


@settings(max_examples=30)
@given(batches(), st.sampled_from([1e-4, 0.005, 0.1, 3.0]), st.sampled_from([0.0, 0.2, 1.0]))
def test_max_with_margin_is_max_of_hinges_over_pairs_and_temperature(batch, temperature, margin):
    scores, positives = batch
    pairs = len(scores)
    leads = [scores[k][m] - scores[k][k] for k in range(pairs) for m in range(pairs) if not positives[k][m]]
    leads += [scores[m][k] - scores[k][k] for k in range(pairs) for m in range(pairs) if not positives[m][k]]
    assume(all(abs(lead + margin) > 1e-9 or lead == margin == 0 for lead in leads))  # a rounding decides there
    ours, hinges = (torch.tensor(scores, dtype=torch.float64, requires_grad=True) for _ in range(2))
    loss = Contrastive(negatives="max", margin=margin, temperature=temperature).loss(scored(ours, positives))
    sums = Hinge(negatives="max", margin=margin).loss(scored(hinges, positives))
    for name, term in loss.terms.items():
        assert term.item() == pytest.approx(sums.terms[name].item() / (pairs * temperature), rel=1e-9, abs=1e-12)
    loss.total.backward()
    (sums.total / (pairs * temperature)).backward()
    torch.testing.assert_close(ours.grad, hinges.grad, rtol=1e-9, atol=0)


TIED = [[[-1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 1.0, -1.0]], [[0.0] * 3] * 3]
EXTREME = [
    *TIED,
    [[1.0, -1.0], [1.0, -1.0]],
    [[0.75, 0.5, 0.875, -0.25], [0.5, 0.625, 0.25, 1.0], [0.125, 0.0, 0.3125, 0.375], [-1.0, 0.75, 0.5, 0.875]],
    torch.rand(5, 5, generator=torch.Generator().manual_seed(1)).half().tolist(),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("temperature", [0.005, 1e-4])
@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_low_temperatures_stay_finite_and_right_in_low_precision(variant, temperature, dtype):
    for values in EXTREME:
        mask = same_group(range(len(values)))
        scores = torch.tensor(values).to(dtype).requires_grad_()
        loss = Contrastive(temperature=temperature, **variant).loss(scored(scores, mask))
        assert loss.total.dtype == torch.float32
        expected = float(sum(reference(values, mask, temperature, **variant)))
        assert loss.total.item() == pytest.approx(expected, rel=1e-5, abs=1e-4)
        loss.total.backward()
        assert scores.grad.isfinite().all()
        if variant is SUM or values not in TIED:  # a maximum of equal scores has no slope of its own
            exact = slopes(values, mask, temperature, **variant)
            precision = max(2e-3, torch.finfo(torch.float32).eps / temperature)  # of the largest logits
            unit = 1 / (len(values) * temperature)
            torch.testing.assert_close(scores.grad.double(), exact, rtol=precision, atol=precision * unit)


@settings(max_examples=20)
@given(batches(4), st.sampled_from([0.02, 0.1, 1.0]))
def test_the_gradient_of_a_learned_temperature_is_the_slope_of_the_equations(batch, temperature):
    objective = Contrastive(temperature=temperature, learn_temperature=True)
    start = {
        name: value.double().requires_grad_()
        for name, value in objective.initial_parameters(ObjectiveContext()).items()
    }
    assert list(start) == ["log_temperature"]
    assert start["log_temperature"].exp().item() == pytest.approx(temperature, rel=1e-6)
    scores = torch.tensor(batch[0], dtype=torch.float64)
    loss = objective.loss(scored(scores, batch[1], parameters=start)).total
    logarithm = start["log_temperature"].item()
    ends = [float(sum(reference(*batch, math.exp(logarithm + move), negatives="sum"))) for move in (1e-5, -1e-5)]
    middle = float(sum(reference(*batch, math.exp(logarithm), negatives="sum")))
    assert loss.item() == pytest.approx(middle, rel=1e-9, abs=1e-9)
    loss.backward()
    assert start["log_temperature"].grad.item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-4)


WANTS_WARMER = [[0.1, 0.9], [0.8, 0.2]]  # each negative is ahead: the higher the temperature, the lower the loss


@pytest.mark.parametrize("temperature", [0.005, 0.01, 0.1])
def test_a_temperature_that_is_learned_has_a_gradient_where_it_starts(temperature):
    objective = Contrastive(temperature=temperature, learn_temperature=True)
    learned = {name: value.requires_grad_() for name, value in objective.initial_parameters(ObjectiveContext()).items()}
    objective.loss(scored(torch.tensor(WANTS_WARMER), same_group([0, 1]), parameters=learned)).total.backward()
    assert learned["log_temperature"].grad < 0


@pytest.mark.parametrize("temperature", [0.005, 0.1])
def test_a_temperature_that_fell_below_its_floor_can_rise_again(temperature):
    objective = Contrastive(temperature=temperature, learn_temperature=True)
    below = torch.tensor(math.log(min(0.01, temperature)) - 0.01, requires_grad=True)
    batch = scored(torch.tensor(WANTS_WARMER), same_group([0, 1]), parameters={"log_temperature": below})
    loss = objective.loss(batch).total
    loss.backward()
    floor = min(0.01, temperature)
    expected = sum(reference(torch.tensor(WANTS_WARMER).tolist(), same_group([0, 1]), floor, negatives="sum"))
    assert loss.item() == pytest.approx(float(expected), rel=1e-4)
    assert below.grad < 0, "no gradient ever leads out from below the floor"


def test_without_learning_there_is_nothing_to_learn():
    assert Contrastive().initial_parameters(ObjectiveContext()) == {}


CONTRASTIVE = "stage.1.objective={name='contrastive', temperature=0.1}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["temperature=0"], r"stage\.1\.objective: temperature = 0"),
        (["temperature=-0.1"], r"stage\.1\.objective: temperature = -0\.1"),
        (["temperature=nan"], r"stage\.1\.objective: temperature = nan"),
        (["temperature=inf"], r"stage\.1\.objective: temperature = inf"),
        (["margin=0.2"], r"margin = 0\.2: needs negatives = 'max'"),
        (["margin=0.2", "negatives=sum"], r"margin = 0\.2: needs negatives = 'max'"),
        (["negatives=max", "margin=-0.2"], r"margin = -0\.2"),
        (["negatives=max", "learn_temperature=true"], r"leave learn_temperature out"),
        (["learn_temperature=true", "negatives=max", "margin=0.2"], r"leave learn_temperature out"),
        (["negatives=mean"], r"negatives = 'mean': .*'sum' or 'max'"),
        (["temprature=0.2"], r"did you mean 'temperature'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused_in_one_line(changes, message):
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe("vsepp", [CONTRASTIVE, *(f"stage.1.objective.{change}" for change in changes)])
    assert "\n" not in str(caught.value)


def test_the_coldest_temperature_is_allowed():
    assert load_recipe("vsepp", [CONTRASTIVE, "stage.1.objective.temperature=1e-4"]).stage[0].objective.temperature > 0


def test_equal_scores_are_a_trap_with_a_margin_only():
    equal = scored(torch.full((4, 4), 0.3), same_group(range(4)))
    with_margin = Contrastive(negatives="max", margin=0.2, temperature=0.1)
    trap = with_margin.loss(equal).total.item()
    assert trap == pytest.approx(2 * 0.2 / 0.1)
    assert with_margin.has_collapsed(with_margin.summary(equal), trap)
    assert not with_margin.has_collapsed(with_margin.summary(equal), trap / 2)
    for objective in (Contrastive(), Contrastive(negatives="max")):
        assert not objective.has_collapsed(objective.summary(equal), objective.loss(equal).total.item())
