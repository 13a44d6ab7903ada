import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych import registry
from diptych.data.sampling.extras import Extras
from diptych.errors import RecipeError, ScoreError
from diptych.objectives.extras import OfflineScores, RampOptions, RampShare
from diptych.objectives.hinge import Hinge
from diptych.objectives.objective import Objective, ScoredPairs
from diptych.objectives.quintuplet import Quintuplet

NAMES = ("text", "image", "both", "derived")


def offline_of(values, drawn=None, apart=None):
    pairs = len(values[0])
    columns = [torch.as_tensor(column, dtype=torch.float64) for column in values]
    drawn = torch.tensor(drawn if drawn is not None else [True] * pairs)
    return OfflineScores(*columns, drawn, torch.tensor(apart) if apart is not None else drawn)


def scored(scores, groups, offline, *others):
    groups = torch.tensor(groups)
    return ScoredPairs(
        torch.as_tensor(scores, dtype=torch.float64), groups[:, None] == groups[None, :], Extras(offline, *others)
    )


def online_weight(how, positive, online, offline):
    """The weight of an online hinge; `offline` is None if nothing was drawn."""
    if how.adaptive == "offline":
        return how.beta if offline is None else how.beta - (offline - online) / how.alpha
    if how.adaptive == "positive":
        return how.beta - (positive - online) / how.alpha
    return 1.0


def reference(scores, groups, values, drawn, apart, how):
    """The loss pair by pair, as the equations have it; nothing but Python's numbers."""

    def hinge(difference):
        return max(difference, 0.0) ** (2 if how.squared else 1)

    total = {"online": 0.0, "offline": 0.0, "derived": 0.0}
    for k in range(len(groups)):
        own = scores[k][k]
        texts = [c for c in range(len(groups)) if groups[c] != groups[k]]
        far = {name: values[place][k] for place, name in enumerate(NAMES)}
        if texts and how.online:
            for near, off in (
                (max(scores[k][c] for c in texts), far["text"]),
                (max(scores[b][k] for b in texts), far["image"]),
            ):
                total["online"] += online_weight(how, own, near, off if drawn[k] else None) * hinge(
                    how.margin - own + near
                )
        if drawn[k]:
            total["offline"] += hinge(how.offline_margin - own + far["text"])
            total["offline"] += hinge(how.offline_margin - own + far["image"])
        if how.derived == "offline" and apart[k]:
            total["derived"] += hinge(how.offline_margin - own + far["both"])
            total["derived"] += hinge(how.offline_margin - own + far["derived"])
        if how.derived == "online" and texts:
            text = max(texts, key=lambda c: scores[k][c])
            image = max(texts, key=lambda b: scores[b][k])
            if groups[text] != groups[image]:
                total["derived"] += hinge(how.offline_margin - own + scores[image][text])
                total["derived"] += hinge(how.offline_margin - own + scores[text][image])
    return total


@st.composite
def batches(draw):
    pairs = draw(st.integers(1, 6))
    groups = draw(st.lists(st.integers(0, 3), min_size=pairs, max_size=pairs))
    distinct = st.lists(st.floats(-1, 1), min_size=pairs, max_size=pairs, unique=True)  # so that the hardest is one
    scores = [draw(distinct) for _ in range(pairs)]
    for column in zip(*scores, strict=True):
        if len(set(column)) < pairs:
            scores = [[value + 1e-3 * row for value in line] for row, line in enumerate(scores)]
    flags = st.lists(st.booleans(), min_size=pairs, max_size=pairs)
    values = [draw(st.lists(st.floats(-1, 1), min_size=pairs, max_size=pairs)) for _ in NAMES]
    drawn, apart = draw(flags), draw(flags)
    return scores, groups, values, drawn, [a and d for a, d in zip(apart, drawn, strict=True)]


WAYS = {
    "triplets (Eq. 3)": {"derived": "none", "adaptive": "none"},
    "quintuplets (Eq. 4)": {"adaptive": "none"},
    "adaptive (Eq. 5)": {},
    "only offline": {"online": False, "adaptive": "none"},
    "online quintuplets": {"derived": "online", "adaptive": "none"},
    "without offline adaptation": {"adaptive": "positive", "alpha": 0.4, "beta": 1.2},
    "squared": {"squared": True, "adaptive": "none"},
    "other numbers": {"margin": 0.5, "offline_margin": 0.1, "alpha": 0.2, "beta": 2.0},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@settings(max_examples=20)
@given(batch=batches())
def test_value_equals_the_equations(batch, way):
    how = Quintuplet(**way)
    scores, groups, values, drawn, apart = batch
    loss = how.loss(scored(scores, groups, offline_of(values, drawn, apart)))
    expected = reference(scores, groups, values, drawn, apart, how)
    for name, term in loss.terms.items():
        assert term.item() == pytest.approx(expected[name], abs=1e-9), name
    missing = {name for name, value in expected.items() if value} - loss.terms.keys()
    assert not missing
    assert loss.total.item() == pytest.approx(sum(expected.values()), abs=1e-9)


@pytest.mark.parametrize("way", [way for name, way in WAYS.items() if name != "only offline"], ids=str)
@settings(max_examples=20)
@given(batch=batches(), share=st.floats(0, 1))
def test_a_ramp_leads_from_plain_hinges_to_the_equations(batch, way, share):
    """(1 - r) x max of hinges + r x the whole loss, in its value and in the gradient of every score."""
    scores, groups, values, drawn, apart = batch
    how, plain = Quintuplet(**way, offline_ramp={}), Quintuplet(**way)
    found = how.loss(scored(scores, groups, offline_of(values, drawn, apart), RampShare(share)))
    unweighted = plain.model_copy(update={"adaptive": "none"})
    online = reference(scores, groups, values, drawn, apart, unweighted)["online"]
    whole = sum(reference(scores, groups, values, drawn, apart, plain).values())
    assert found.total.item() == pytest.approx((1 - share) * online + share * whole, abs=1e-9)


@pytest.mark.parametrize(("share", "other"), [(0.0, Hinge()), (1.0, Quintuplet())], ids=["max of hinges", "Eq. 5"])
@given(batch=batches())
def test_the_ends_of_a_ramp_have_the_gradients_of_their_objectives(batch, share, other):
    scores, groups, values, drawn, apart = batch
    # no two scores are equal and no hinge is 0, where a gradient may go either way
    offset = 1e-4 * math.sqrt(2) * torch.arange(len(scores) ** 2, dtype=torch.float64).view(len(scores), -1)
    gradients = []
    for how in (Quintuplet(offline_ramp={"after": 10}), other):
        table = (torch.tensor(scores, dtype=torch.float64) + offset).requires_grad_()
        made = scored(table, groups, offline_of(values, drawn, apart), RampShare(share))
        how.loss(made).total.backward()
        gradients.append(table.grad)
    torch.testing.assert_close(*gradients)


def sides(scores, far):
    """One pair's image side with the hardest text of a batch of two: S(i, t), S(i, t_on), S(i, t_off)."""
    own, near = scores
    indicator = float(0.2 - own + near > 0)
    first, second = float(-own + far > 0), float(-own + 0.1 > 0)
    return (
        ((far - near) / 0.3 - 1.5) * indicator - first - second,
        ((own - near) / 0.3 - 0.2 / 0.3) * indicator + first,
        ((2 * near - own - far) / 0.3 + 1.5 + 0.2 / 0.3) * indicator,
    )


@given(st.tuples(st.floats(-0.9, 0.9), st.floats(-0.9, 0.9)), st.floats(-0.9, 0.9))
def test_the_weights_carry_the_gradient_of_eq_6(scores, far):
    """By Eq. 6, written out by hand; the text side is made inactive, and S(i_off, t_off) is 0.1."""
    own, near = scores
    if min(abs(0.2 - own + near), abs(far - own), abs(0.1 - own)) < 1e-6:  # at a kink
        return
    table = torch.tensor([[own, near], [-3.0, 5.0]], dtype=torch.float64, requires_grad=True)
    columns = [torch.tensor(column, dtype=torch.float64, requires_grad=True) for column in [[far, -9.0], [-9.0, -9.0]]]
    both = torch.tensor([0.1, -9.0], dtype=torch.float64)
    derived = torch.tensor([-9.0, -9.0], dtype=torch.float64)
    yes = torch.ones(2, dtype=torch.bool)
    batch = ScoredPairs(table, torch.eye(2).bool(), Extras(OfflineScores(*columns, both, derived, yes, yes)))
    Quintuplet().loss(batch).total.backward()
    of_own, of_far, of_near = sides(scores, far)
    # The pair's text has S(i_on, t) = -3 and S(i_off, t) = -9 as negatives, too; only the first may be active.
    if 0.2 - own - 3.0 > 0:
        of_own += (-9.0 + 3.0) / 0.3 - 1.5
    assert table.grad[0, 0].item() == pytest.approx(of_own, abs=1e-9)
    assert columns[0].grad[0].item() == pytest.approx(of_far, abs=1e-9)
    # the second pair's text has `near` as its hardest image, far below its own 5
    assert table.grad[0, 1].item() == pytest.approx(of_near, abs=1e-9)


def test_weights_are_neither_detached_nor_clamped():
    """Once S_off - S_on exceeds alpha beta the weight is negative."""
    table = [[0.0, 0.0], [-1.0, 1.0]]
    loss = Quintuplet(derived="none").loss(scored(table, [0, 1], offline_of([[0.9, 0], [0, 0], [0, 0], [0, 0]])))
    assert loss.terms["online"].item() == pytest.approx((1.5 - 3.0) * 0.2)


def test_a_batch_of_one_group_has_no_online_term():
    loss = Quintuplet().loss(scored([[0.3, 0.5], [0.1, 0.2]], [4, 4], offline_of([[0.5, 0.5]] * 4)))
    assert loss.terms["online"].item() == 0
    assert math.isfinite(loss.total.item())


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_equal_scores_are_a_trap_that_is_noticed(way):
    how = Quintuplet(**way)
    pairs = 4
    batch = scored(torch.full((pairs, pairs), 0.7), range(pairs), offline_of([[0.7] * pairs] * 4))
    total = how.loss(batch).total.item()
    assert how.has_collapsed(how.summary(batch), total)
    assert not how.has_collapsed(how.summary(batch), total + 0.5)
    assert not how.has_collapsed(
        how.summary(scored(torch.eye(pairs), range(pairs), batch.extras[OfflineScores])), total
    )
    assert "sum of hinges" in how.collapse_hint


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("way", [way for name, way in WAYS.items() if name != "only offline"], ids=str)
def test_equal_scores_are_a_trap_anywhere_on_a_ramp(way, share):
    how = Quintuplet(**way, offline_ramp={})
    batch = scored(torch.full((4, 4), 0.7), range(4), offline_of([[0.7] * 4] * 4), RampShare(share))
    total = how.loss(batch).total.item()
    assert how.has_collapsed(how.summary(batch), total)
    assert not how.has_collapsed(how.summary(batch), 0.9 * 4 * how._online_plateau)
    assert not how.has_collapsed(how.summary(batch), 4 * 10.0)


def test_a_ramp_declares_what_it_needs():
    assert Quintuplet().needs == ("offline",)
    assert Quintuplet().need_options("offline") is None
    how = Quintuplet(offline_ramp={"after": "plateau", "steps": 7}, margin=0.3)
    assert how.needs == ("offline", "ramp")
    assert how.need_options("offline") is None
    found = how.need_options("ramp")
    assert (found.steps, found.after, found.term) == (7, None, "online")
    assert found.below == pytest.approx(0.9 * 2 * 0.3)
    assert Quintuplet(offline_ramp={}, squared=True).need_options("ramp").below == pytest.approx(0.9 * 2 * 0.04)
    later = Quintuplet(offline_ramp={"after": 40}, margin=0.0).need_options("ramp")
    assert later == RampOptions(300, 40, "online", 0.0)


def test_a_caller_is_told_about_the_share():
    how, far = Quintuplet(offline_ramp={}), offline_of([[0.5, 0.1]] * 4)
    table = torch.eye(2, dtype=torch.float64)
    with pytest.raises(ScoreError, match=r"Quintuplet needs more than scores; pass extras=\[RampShare\(...\)\]"):
        how(table, extras=[far])
    with pytest.raises(ScoreError, match=r"RampShare\(1.5\): pass a share from 0 to 1"):
        how(table, extras=[far, RampShare(1.5)])
    whole, half, none = (how(table, extras=[far, RampShare(share)]).item() for share in (1.0, 0.5, 0.0))
    assert whole == pytest.approx(Quintuplet()(table, extras=[far]).item())
    assert none == pytest.approx(Hinge()(table).item())
    assert half == pytest.approx((whole + none) / 2)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"offline_ramp": {"after": "platau"}}, r"offline_ramp\.after = 'platau': use 'plateau' or a number of steps"),
        ({"offline_ramp": {"after": -1}}, "use 'plateau' or a number of steps, 0 or more"),
        ({"offline_ramp": {"after": 1.5}}, "use 'plateau' or a number of steps, 0 or more"),
        ({"offline_ramp": {"after": True}}, "use 'plateau' or a number of steps, 0 or more"),
        ({"offline_ramp": {"stps": 3}}, r"'offline_ramp\.stps'; did you mean 'steps'"),
        ({"offline_ramp": {"steps": 0}}, r"offline_ramp\.steps"),
        ({"offline_ramp": {}, "online": False}, "leave it out, or online = false"),
        ({"offline_ramp": {}, "margin": 0}, "without a margin there is no plateau"),
        ({"alpha": 0}, "alpha"),
        ({"derived": "both"}, "derived"),
        ({"adaptive": "online"}, "adaptive"),
        ({"margins": 0.1}, "margin"),
    ],
    ids=str,
)
def test_what_is_no_setting_is_refused(table, words):
    with pytest.raises(RecipeError, match=words):
        registry.resolve("objectives", {"name": "quintuplet", **table}, "objective", Objective)
