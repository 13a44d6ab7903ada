"""The fast hinge against a loop written from the paper's equations, pair by pair, in plain Python floats."""

import math
import types
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.errors import RecipeError
from diptych.objectives import hinge
from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import Objective, ScoredPairs
from diptych.registry import resolve


def reference(scores, groups, margin, negatives, mask_same_group=True):
    """Eq. 5 and Eq. 6 of VSE++ for each drawn pair k = (image k, text k)."""
    image_to_text = text_to_image = 0.0
    pairs = len(groups)
    for k in range(pairs):
        others = [m for m in range(pairs) if (groups[m] != groups[k] if mask_same_group else m != k)]
        own = scores[k][k]
        text_costs = [max(0.0, margin - own + scores[k][m]) for m in others]
        image_costs = [max(0.0, margin - own + scores[m][k]) for m in others]
        reduce = max if negatives == "max" else math.fsum
        image_to_text += reduce(text_costs) if text_costs else 0.0
        text_to_image += reduce(image_costs) if image_costs else 0.0
    return image_to_text, text_to_image


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


@given(batches(), st.sampled_from(["max", "sum"]), st.sampled_from([0.0, 0.05, 0.2, 1.0]), st.booleans())
def test_value_equals_the_equations(batch, negatives, margin, mask):
    loss = Hinge(negatives=negatives, margin=margin, mask_same_group=mask)(scored(*batch))
    image_to_text, text_to_image = reference(*batch, margin, negatives, mask)
    assert loss.terms["image_to_text"].item() == pytest.approx(image_to_text, abs=1e-9)
    assert loss.terms["text_to_image"].item() == pytest.approx(text_to_image, abs=1e-9)
    assert loss.total.item() == pytest.approx(image_to_text + text_to_image, abs=1e-9)


@given(st.integers(0, 10_000), st.sampled_from(["max", "sum"]), st.booleans())
def test_gradient_equals_finite_differences_of_the_equations(seed, negatives, mask):
    random = torch.Generator().manual_seed(seed)
    scores = torch.rand(4, 4, generator=random, dtype=torch.float64, requires_grad=True)
    groups = torch.randint(0, 3, (4,), generator=random).tolist()
    positives = scored(scores.detach(), groups).positives
    Hinge(negatives=negatives, mask_same_group=mask)(ScoredPairs(scores, positives)).total.backward()
    small = 1e-7
    for row in range(4):
        for column in range(4):
            moved = scores.detach().clone()
            moved[row, column] += small
            up = sum(reference(moved.tolist(), groups, 0.2, negatives, mask))
            moved[row, column] -= 2 * small
            down = sum(reference(moved.tolist(), groups, 0.2, negatives, mask))
            assert scores.grad[row, column].item() == pytest.approx((up - down) / (2 * small), abs=1e-4)


SOURCE = Path(hinge.__file__).read_text()
MUTATIONS = [
    (
        "the sign of the negatives",
        "self.margin + batch.scores - own[:, None]",
        "self.margin - batch.scores + own[:, None]",
    ),
    (
        "the sign of the margin",
        "self.margin + batch.scores - own[None, :]",
        "-self.margin + batch.scores - own[None, :]",
    ),
    ("the positive of the wrong side", "own[None, :]", "own[:, None]"),
    ("no hinge", "own[:, None]).clamp(min=0)", "own[:, None])"),
    ("no mask", ".masked_fill(excluded, 0)", ""),
    ("the mask turned round", "masked_fill(excluded, 0)", "masked_fill(~excluded, 0)"),
    ("the mask of the public code", "return batch.positives", "return torch.eye(len(batch.scores)) > 0.5"),
    ("the maximum over the wrong side", "texts.amax(1), images.amax(0)", "texts.amax(0), images.amax(1)"),
    ("off by one", "own = batch.scores.diagonal()", "own = batch.scores.diagonal().roll(1)"),
    ("the mean for the sum", '"image_to_text": texts.sum()', '"image_to_text": texts.mean()'),
    ("one direction twice", '"text_to_image": images.sum()', '"text_to_image": texts.sum()'),
]


def disagreements(objective_class):
    """In how many of some random batches an implementation differs from the equations."""
    random = torch.Generator().manual_seed(0)
    found = 0
    for negatives in ("max", "sum") * 10:
        scores = torch.rand(6, 6, generator=random, dtype=torch.float64)
        groups = torch.randint(0, 4, (6,), generator=random).tolist()
        total = objective_class(negatives=negatives)(scored(scores, groups)).total.item()
        found += abs(total - sum(reference(scores.tolist(), groups, 0.2, negatives))) > 1e-9
    return found


@pytest.mark.parametrize(("old", "new"), [change[1:] for change in MUTATIONS], ids=[change[0] for change in MUTATIONS])
def test_a_mutation_is_caught(old, new):
    assert old in SOURCE, "the code has changed: change the mutation with it"
    mutant = types.ModuleType("mutant")
    exec(compile(SOURCE.replace(old, new), "mutant", "exec"), vars(mutant))
    mutant.Hinge.model_rebuild(_types_namespace=vars(mutant))
    assert disagreements(Hinge) == 0
    assert disagreements(mutant.Hinge) > 0


def test_same_group_pairs_are_never_negatives_unless_asked_as_the_originals_do():
    scores = [[0.1, 0.9], [0.9, 0.1]]  # two texts of one image, each scoring higher with the other's image
    assert Hinge()(scored(scores, [5, 5])).total.item() == 0
    assert Hinge(mask_same_group=False)(scored(scores, [5, 5])).total.item() == pytest.approx(4.0)


@pytest.mark.parametrize("level", [0.7, -30.0])
def test_equal_embeddings_are_a_trap_at_two_margins_a_pair(level):
    batch = scored([[level] * 5] * 5, [0, 0, 1, 2, 3])
    objective = Hinge(margin=0.2)
    total = objective(batch).total.item()
    assert total == pytest.approx(2 * 5 * 0.2)
    assert objective.stuck(batch, total)
    assert not objective.stuck(batch, 0.9 * total)
    assert not objective.stuck(scored([[0.9] * 5, [0.1] * 5] + [[0.5] * 5] * 3, [0, 0, 1, 2, 3]), total)
    assert not objective.stuck(scored([[0.7] * 2] * 2, [4, 4]), 0.0)  # no negatives, nothing to be stuck at
    assert not Hinge(negatives="sum").stuck(batch, total)


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
