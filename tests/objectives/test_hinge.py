"""The fast hinge against a loop written from the paper's equations, pair by pair, in plain Python floats."""

import math
import types
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.objectives import hinge
from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import Objective, ScoredPairs
from diptych.registry import resolve
from support.mutants import mutants


def reference(scores, groups, margin, negatives, mask_same_group=True):
    """Eq. 5 and Eq. 6 of VSE++ for each drawn pair k = (image k, text k); `next` is Eq. 4 of the dual-path paper."""
    image_to_text = text_to_image = 0.0
    pairs = len(groups)
    for k in range(pairs):
        behind = [(k + step) % pairs for step in range(1, pairs)]
        others = [m for m in behind if groups[m] != groups[k] or not mask_same_group]
        others = others[:1] if negatives == "next" else others
        own = scores[k][k]
        text_costs = [max(0.0, margin - own + scores[k][m]) for m in others]
        image_costs = [max(0.0, margin - own + scores[m][k]) for m in others]
        image_to_text += together(text_costs, negatives)
        text_to_image += together(image_costs, negatives)
    return image_to_text, text_to_image


def together(costs, negatives):
    """The max, the sum, or the p-norm of some hinges, this one by way of logarithms."""
    costs = [cost for cost in costs if cost > 0]
    if not costs:
        return 0.0
    if isinstance(negatives, str) or negatives in (0, 1):
        return max(costs) if negatives in ("max", "next", 0) else math.fsum(costs)
    logarithms = [math.log(cost) / negatives for cost in costs]
    top = max(logarithms)
    return math.exp(negatives * (top + math.log(math.fsum(math.exp(each - top) for each in logarithms))))


def scored(scores, groups):
    groups = torch.tensor(groups)
    return ScoredPairs(torch.as_tensor(scores, dtype=torch.float64), groups[:, None] == groups[None, :])


@st.composite
def batches(draw):
    pairs = draw(st.integers(1, 7))
    groups = draw(st.lists(st.integers(0, 3), min_size=pairs, max_size=pairs))  # uneven, with repeats
    values = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.3, 1.0]) | st.floats(-1, 1)  # ties are common
    row = st.lists(values, min_size=pairs, max_size=pairs)
    return draw(st.lists(row, min_size=pairs, max_size=pairs)), groups


SOFTNESSES = [0.0, 1e-3, 0.05, 0.25, 0.5, 0.9, 0.999, 1.0]


@given(
    batches(),
    st.sampled_from(["max", "sum", "next", *SOFTNESSES]),
    st.sampled_from([0.0, 0.05, 0.2, 1.0]),
    st.booleans(),
)
def test_value_equals_the_equations(batch, negatives, margin, mask):
    loss = Hinge(negatives=negatives, margin=margin, mask_same_group=mask).loss(scored(*batch))
    image_to_text, text_to_image = reference(*batch, margin, negatives, mask)
    assert loss.terms["image_to_text"].item() == pytest.approx(image_to_text, abs=1e-9)
    assert loss.terms["text_to_image"].item() == pytest.approx(text_to_image, abs=1e-9)
    assert loss.total.item() == pytest.approx(image_to_text + text_to_image, abs=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(["max", "sum", "next", 0.05, 0.25, 0.5, 0.9]), st.booleans())
def test_gradient_equals_finite_differences_of_the_equations(seed, negatives, mask):
    random = torch.Generator().manual_seed(seed)
    scores = torch.rand(4, 4, generator=random, dtype=torch.float64, requires_grad=True)
    groups = torch.randint(0, 3, (4,), generator=random).tolist()
    positives = scored(scores.detach(), groups).positives
    Hinge(negatives=negatives, mask_same_group=mask).loss(ScoredPairs(scores, positives)).total.backward()
    small = 1e-7
    for row in range(4):
        for column in range(4):
            moved = scores.detach().clone()
            moved[row, column] += small
            up = sum(reference(moved.tolist(), groups, 0.2, negatives, mask))
            moved[row, column] -= 2 * small
            down = sum(reference(moved.tolist(), groups, 0.2, negatives, mask))
            assert scores.grad[row, column].item() == pytest.approx((up - down) / (2 * small), abs=1e-4)


FUNCTIONS = {"per_query_loss", "_excluded", "hardest_negatives", "next_negatives", "_between"}
MUTANTS = dict(mutants(Path(hinge.__file__).read_text(), FUNCTIONS))


def disagreements(objective_class):
    """In how many of some random batches an implementation differs from the equations."""
    random = torch.Generator().manual_seed(0)
    found = 0
    for turn, negatives in enumerate(("max", "sum", "next", 0.3) * 10):
        scores = torch.rand(6, 6, generator=random, dtype=torch.float64)
        groups = torch.randint(0, 4 if turn % 5 else 1, (6,), generator=random).tolist()
        terms = [
            term.item() for term in objective_class(negatives=negatives).loss(scored(scores, groups)).terms.values()
        ]
        found += terms != pytest.approx(reference(scores.tolist(), groups, 0.2, negatives), abs=1e-9)
    return found


@pytest.mark.parametrize("source", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_caught(source):
    module = types.ModuleType("mutant")
    exec(compile(source, "mutant", "exec"), vars(module))
    module.Hinge.model_rebuild(_types_namespace=vars(module))
    try:
        found = disagreements(module.Hinge)
    except (ArithmeticError, RuntimeError):  # a mutant that fails is caught, too
        return
    assert found > 0


def test_the_code_itself_is_not_caught():
    assert disagreements(Hinge) == 0


def loss_and_gradient(scores, groups, negatives, margin=0.2):
    scores = scores.clone().requires_grad_()
    groups = torch.tensor(groups)
    loss = Hinge(negatives=negatives, margin=margin).loss(ScoredPairs(scores, groups[:, None] == groups[None, :])).total
    loss.backward()
    return loss.detach(), scores.grad


@settings(max_examples=20)
@given(batches())
def test_the_ends_of_the_spectrum_are_max_and_sum_to_the_last_bit(batch):
    scores, groups = torch.tensor(batch[0], dtype=torch.float32), batch[1]
    for softness, name in ((0, "max"), (0.0, "max"), (1, "sum"), (1.0, "sum")):
        for soft, named in zip(
            loss_and_gradient(scores, groups, softness), loss_and_gradient(scores, groups, name), strict=True
        ):
            assert torch.equal(soft, named)


@settings(max_examples=30)
@given(batches())
def test_the_loss_rises_with_softness_from_max_to_sum(batch):
    losses = [Hinge(negatives=softness).loss(scored(*batch)).total.item() for softness in SOFTNESSES]
    for softer, harder in zip(losses[1:], losses[:-1], strict=True):
        assert softer >= harder - 1e-12 * max(1, harder)


@settings(max_examples=40)
@given(
    batches(),
    st.sampled_from([5e-324, 1e-40, 1e-12, 1e-3, 0.5, 1 - 1e-7]),
    st.sampled_from([1.0, 1e-38, 1e-44, 1e4]),
    st.sampled_from([0.0, 0.2]),
)
def test_nothing_overflows_in_single_precision(batch, softness, scale, margin):
    scores = scale * torch.tensor(batch[0], dtype=torch.float32)
    loss, gradient = loss_and_gradient(scores, batch[1], softness, margin)
    of_max, _ = loss_and_gradient(scores, batch[1], "max", margin)
    of_sum, _ = loss_and_gradient(scores, batch[1], "sum", margin)
    assert loss.isfinite()
    assert gradient.isfinite().all()
    assert gradient.abs().max() <= 2 * len(scores) + 1e-3  # no weight is beyond 1
    assert of_max * (1 - 1e-5) - 1e-44 <= loss <= of_sum * (1 + 1e-5) + 1e-44


def test_a_soft_loss_pushes_all_negatives_the_harder_the_more():
    scores = torch.tensor(
        [[0.5, 0.45, 0.4, -1.0], [-1.0, 9.0, -1.0, -1.0], [-1.0] * 2 + [9.0, -1.0], [-1.0] * 3 + [9.0]]
    )
    _, gradient = loss_and_gradient(scores, [0, 1, 2, 3], 0.5)
    hinges = torch.tensor([0.15, 0.10])
    torch.testing.assert_close(gradient[0, 1:], torch.cat([hinges / hinges.norm(), torch.zeros(1)]))


def test_same_group_pairs_are_never_negatives_unless_asked_as_the_originals_do():
    scores = [[0.1, 0.9], [0.9, 0.1]]  # two texts of one image, each scoring higher with the other's image
    assert Hinge().loss(scored(scores, [5, 5])).total.item() == 0
    assert Hinge(mask_same_group=False).loss(scored(scores, [5, 5])).total.item() == pytest.approx(4.0)


@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_the_next_negative_of_one_group_alone_is_none(pairs):
    scores = torch.rand(pairs, pairs, requires_grad=True)
    loss = Hinge(negatives="next", margin=1.0).loss(ScoredPairs(scores, torch.ones(pairs, pairs, dtype=torch.bool)))
    loss.total.backward()
    assert loss.total.item() == 0
    assert not scores.grad.any()


def test_the_next_negative_is_the_image_and_the_text_of_one_pair():
    scores = torch.zeros(4, 4, requires_grad=True)
    groups = torch.tensor([0, 0, 1, 2])
    Hinge(negatives="next").loss(ScoredPairs(scores, groups[:, None] == groups)).total.backward()
    expected = torch.zeros(4, 4)
    for pair, negative in ((0, 2), (1, 2), (2, 3), (3, 0)):
        expected[pair, pair] -= 2
        expected[pair, negative] += 1
        expected[negative, pair] += 1
    assert torch.equal(scores.grad, expected)


@pytest.mark.parametrize("negatives", ["max", "next"])
@pytest.mark.parametrize("level", [0.7, -30.0])
def test_equal_embeddings_are_a_trap_at_two_margins_a_pair(level, negatives):
    batch = scored([[level] * 5] * 5, [0, 0, 1, 2, 3])
    objective = Hinge(margin=0.2, negatives=negatives)
    total = objective.loss(batch).total.item()
    assert total == pytest.approx(2 * 5 * 0.2)
    assert objective.has_collapsed(objective.summary(batch), total)
    assert not objective.has_collapsed(objective.summary(batch), 0.9 * total)
    assert not objective.has_collapsed(
        objective.summary(scored([[0.9] * 5, [0.1] * 5] + [[0.5] * 5] * 3, [0, 0, 1, 2, 3])), total
    )
    assert not objective.has_collapsed(
        objective.summary(scored([[0.7] * 2] * 2, [4, 4])), 0.0
    )  # no negatives, nothing to be stuck at
    assert not Hinge(negatives="sum").has_collapsed(Hinge(negatives="sum").summary(batch), total)


@pytest.mark.parametrize("softness", [1e-3, 0.1, 0.5, 0.9])
def test_the_trap_of_a_soft_loss_counts_the_negatives(softness):
    batch = scored([[0.7] * 5] * 5, [0, 0, 1, 2, 3])
    objective = Hinge(negatives=softness)
    total = objective.loss(batch).total.item()
    assert total == pytest.approx(0.2 * 2 * (2 * 3**softness + 3 * 4**softness))
    assert objective.has_collapsed(objective.summary(batch), total)
    assert not objective.has_collapsed(objective.summary(batch), 0.9 * total)
    assert not objective.has_collapsed(
        objective.summary(scored([[0.9] * 5, [0.1] * 5] + [[0.5] * 5] * 3, [0, 0, 1, 2, 3])), total
    )
    assert not objective.has_collapsed(objective.summary(scored([[0.7] * 2] * 2, [4, 4])), 0.0)
    assert not Hinge(negatives=1.0).has_collapsed(
        Hinge(negatives=1.0).summary(batch), Hinge(negatives=1.0).loss(batch).total.item()
    )
    assert Hinge(negatives=0.0).has_collapsed(Hinge(negatives=0.0).summary(batch), 2 * 5 * 0.2)
    assert "2 x margin" not in objective.collapse_hint
    assert "negatives = 'sum'" in objective.collapse_hint


@pytest.mark.parametrize("negatives", ["max", 0.5])
def test_a_query_without_negatives_adds_nothing_to_the_trap(negatives):
    batch = ScoredPairs(torch.full((3, 3), 0.7, dtype=torch.float64), torch.eye(3, dtype=torch.bool))
    lonely = scored([[0.7] * 3] * 3, [4, 4, 4])
    objective = Hinge(negatives=negatives)
    assert objective.loss(lonely).total.item() == 0
    assert not objective.has_collapsed(objective.summary(lonely), 0.0)
    assert objective.has_collapsed(objective.summary(batch), objective.loss(batch).total.item())


@pytest.mark.parametrize("wrong", [1.5, -0.1, "mx", "0.5", True, None, [0.5], float("nan")], ids=repr)
def test_negatives_are_max_sum_or_a_softness(wrong):
    with pytest.raises(RecipeError) as raised:
        resolve("objectives", {"name": "hinge", "negatives": wrong}, "stage.1.objective", Objective)
    remedy = "use 'max', 'sum', 'next' or a softness from 0 (max) to 1 (sum)"
    assert str(raised.value) == f"stage.1.objective: negatives = {wrong!r}: {remedy}"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"name": "hinge", "margn": 0.1}, "did you mean 'margin'"),
        ({"name": "hing"}, "did you mean 'hinge'"),
        ({"name": "hinge", "margin": -1}, "margin = -1"),
        ({"name": "objective"}, "no such name"),
        ({"name": "../hinge"}, "no such name"),
        ({"margin": 1}, "needs a table with a name"),
    ],
)
def test_a_name_resolves_only_inside_the_package(section, words):
    with pytest.raises(RecipeError, match=r"stage\.1\.objective") as raised:
        resolve("objectives", section, "stage.1.objective", Objective)
    assert words in str(raised.value)
