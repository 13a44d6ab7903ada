"""The neighbourhood loss against loops over triplets, from Eq. 6 and Algorithm 1, with autograd through them."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.sampling.extras import Extras
from diptych.errors import RecipeError
from diptych.objectives.extras import NegativeScores, PairRoles, WithinScores
from diptych.objectives.hinge import Hinge
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.objectives.objective import Objective, ScoredPairs
from diptych.registry import resolve

TERMS = ["image_to_text", "text_to_image", "image_to_image", "text_to_text"]


def largest(losses, most):
    """The sum of at most so many triplets with the highest loss above zero."""
    kept = sorted((loss for loss in losses if loss > 0), key=torch.Tensor.item, reverse=True)[:most]
    return sum(kept, torch.zeros((), dtype=torch.float64))


def reference(drawn, objective):
    """All triplets by name: `images[k]` and `texts[k]` say which image and text pair k has, `groups[k]` its group."""
    margin, most, pairs = objective.margin, objective.most, range(len(drawn["groups"]))
    images, texts, groups = drawn["images"], drawn["texts"], drawn["groups"]
    across, among_images, among_texts = (-each for each in drawn["scores"])  # distances
    totals = dict.fromkeys(TERMS, 0.0)
    for k in pairs:
        own = across[k, k]
        if drawn["asking"][0][k]:
            others = {texts[c]: across[k, c] for c in reversed(pairs) if groups[c] != groups[k]}.values()
            totals["image_to_text"] += largest([margin + own - other for other in others], most)
        if drawn["asking"][1][k]:
            others = list({images[r]: across[r, k] for r in reversed(pairs) if groups[r] != groups[k]}.values())
            if drawn["rivals"] is not None:
                others = [-score for score in drawn["rivals"][k] if score > -torch.inf]
            totals["text_to_image"] += largest([margin + own - other for other in others], most)
    for name, items, distances in (("image_to_image", images, among_images), ("text_to_text", texts, among_texts)):
        places = {item: items.index(item) for item in items}.values()  # each distinct item once
        for anchor in places:
            for neighbour in places:
                if neighbour == anchor or groups[neighbour] != groups[anchor]:
                    continue
                others = [distances[anchor, place] for place in places if groups[place] != groups[anchor]]
                totals[name] += largest([margin + distances[anchor, neighbour] - other for other in others], most)
    return {name: getattr(objective, name) * total / len(pairs) for name, total in totals.items()}


@st.composite
def batches(draw):
    """Pairs drawn with repeats: an image or a text of a group may be in several of them."""
    pairs = draw(st.integers(1, 8))
    groups = draw(st.lists(st.integers(0, 3), min_size=pairs, max_size=pairs))
    images = [(group, draw(st.integers(0, 2))) for group in groups]
    texts = [(group, draw(st.integers(0, 2))) for group in groups]
    random = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    rows = torch.tensor([images.index(image) for image in images])
    columns = torch.tensor([texts.index(text) for text in texts])
    level = draw(st.sampled_from([0.1, 0.3, 1.0]))  # of the margin's size and above

    def scores():
        return -level * torch.rand(pairs, pairs, generator=random, dtype=torch.float64)

    rivals = None
    if draw(st.booleans()):
        rivals = -level * torch.rand(pairs, draw(st.integers(1, 4)), generator=random, dtype=torch.float64)
        rivals[torch.rand(rivals.shape, generator=random) < 0.3] = -torch.inf
    return {
        "groups": groups,
        "images": images,
        "texts": texts,
        # the same image has the same scores wherever it stands
        "scores": [scores()[rows][:, columns], scores()[rows][:, rows], scores()[columns][:, columns]],
        "rivals": rivals,
        "asking": [draw(st.lists(st.booleans(), min_size=pairs, max_size=pairs)) for _ in range(2)],
    }


def scored(drawn):
    groups = torch.tensor(drawn["groups"])
    first = tuple(
        torch.tensor([items.index(x) == k for k, x in enumerate(items)])
        for items in map(drawn.get, ("images", "texts"))
    )
    scores, *within = drawn["scores"]
    roles = PairRoles(*first, *(torch.tensor(each) for each in drawn["asking"]))
    extras = Extras(WithinScores(*within), roles)
    if drawn["rivals"] is not None:
        extras = extras.add(NegativeScores(images=drawn["rivals"]))
    return ScoredPairs(scores, groups[:, None] == groups, extras)


WEIGHTS = {"image_to_text": 0.5, "text_to_image": 2.0, "image_to_image": 0.3, "text_to_text": 0.7}


@settings(max_examples=30)
@given(batches(), st.sampled_from([1, 2, 3, 50]), st.sampled_from([0.0, 0.1, 0.5]))
def test_value_and_gradient_equal_the_triplets(drawn, most, margin):
    objective = Neighbourhood(margin=margin, most=most, **WEIGHTS)
    leaves = [each for each in (*drawn["scores"], drawn["rivals"]) if each is not None]
    for leaf in leaves:
        leaf.requires_grad_()
    loss = objective.loss(scored(drawn))
    expected = reference(drawn, objective)
    assert list(loss.terms) == TERMS
    assert loss.is_mean
    for name in TERMS:
        assert loss.terms[name].item() == pytest.approx(torch.as_tensor(expected[name]).item(), abs=1e-12)
    gradients = torch.autograd.grad(loss.total, leaves, allow_unused=True)
    total = sum(expected.values())
    slopes = (
        torch.autograd.grad(total, leaves, allow_unused=True) if torch.is_tensor(total) and total.requires_grad else []
    )
    for leaf, gradient, slope in itertools.zip_longest(leaves, gradients, slopes):
        ours, theirs = (torch.zeros_like(leaf) if each is None else each for each in (gradient, slope))
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def plain(pairs=6, seed=0):
    random = torch.Generator().manual_seed(seed)
    groups = torch.arange(pairs) // 2
    scores = [torch.rand(pairs, pairs, generator=random, dtype=torch.float64) for _ in range(3)]
    return scores, groups[:, None] == groups


@pytest.mark.parametrize(("most", "negatives"), [(1, "max"), (50, "sum")])
def test_one_violation_is_the_max_of_hinges_and_all_are_their_sum(most, negatives):
    scores, positives = plain()
    batch = ScoredPairs(scores[0], positives)
    loss = Neighbourhood(margin=0.2, most=most, image_to_text=1.0, text_to_image=1.0).loss(batch)
    summed = Hinge(margin=0.2, negatives=negatives).loss(batch)
    for name, term in summed.terms.items():
        assert loss.terms[name].item() == pytest.approx(term.item() / 6)


def test_the_paper_weighs_texts_twice_and_looks_across_only():
    scores, positives = plain()
    objective = Neighbourhood()
    assert (objective.margin, objective.most, "within" in objective.needs) == (0.1, 50, False)
    loss = objective.loss(ScoredPairs(scores[0], positives))
    even = Neighbourhood(text_to_image=1.0).loss(ScoredPairs(scores[0], positives))
    assert list(loss.terms) == ["image_to_text", "text_to_image"]
    assert loss.terms["text_to_image"].item() == pytest.approx(2 * even.terms["text_to_image"].item())
    assert loss.terms["image_to_text"] == even.terms["image_to_text"]


@pytest.mark.parametrize("name", TERMS)
def test_a_weight_of_zero_leaves_its_term_out(name):
    scores, positives = plain()
    alone = Neighbourhood(**{**dict.fromkeys(TERMS, 0.0), name: 1.0})
    assert ("within" in alone.needs) == (name in TERMS[2:])
    batch = ScoredPairs(scores[0], positives, Extras(WithinScores(scores[1], scores[2])))
    assert list(alone.loss(batch).terms) == [name]
    assert alone.loss(batch).total > 0


def test_rivals_are_the_only_negatives_of_their_direction():
    scores, positives = plain()
    missing = torch.full((6, 2), -torch.inf, dtype=torch.float64)
    for side, name in (("images", "text_to_image"), ("texts", "image_to_text")):
        loss = Neighbourhood().loss(ScoredPairs(scores[0], positives, Extras(NegativeScores(**{side: missing}))))
        assert loss.terms[name] == 0
        assert loss.total > 0


def test_a_batch_of_one_group_loses_nothing():
    scores, _ = plain()
    batch = ScoredPairs(
        scores[0].requires_grad_(), torch.ones(6, 6, dtype=torch.bool), Extras(WithinScores(*scores[1:]))
    )
    loss = Neighbourhood(**WEIGHTS).loss(batch)
    loss.total.backward()
    assert loss.total == 0
    assert (scores[0].grad == 0).all()


def test_equal_distances_are_a_trap():
    positives = plain()[1]
    equal = ScoredPairs(torch.full((6, 6), -0.5), positives)
    objective = Neighbourhood(most=3)
    total = objective.loss(equal).total.item()
    assert total == pytest.approx(0.1 * 3 * (1 + 2))
    assert objective.has_collapsed(objective.summary(equal), total)
    assert not objective.has_collapsed(objective.summary(equal), 0.0)  # no negatives, nothing to be stuck at
    apart = ScoredPairs(torch.full((6, 6), -0.5) + 0.05 * torch.eye(6), positives)
    assert not objective.has_collapsed(objective.summary(apart), total)
    assert "optimiser.rate" in objective.collapse_hint


def test_what_cannot_be_weighed_is_refused():
    nothing = {"name": "neighbourhood", "image_to_text": 0.0, "text_to_image": 0.0}
    with pytest.raises(RecipeError, match=r"stage\.1\.objective: text_to_text = 0\.0: all four weights are 0"):
        resolve("objectives", nothing, "stage.1.objective", Objective)
    some = resolve("objectives", {**nothing, "text_to_text": 0.1}, "stage.1.objective", Objective)
    assert "within" in some.needs
    for wrong in ({"most": 0}, {"margin": -0.1}, {"text_to_image": -1.0}, {"lambda": 1.0}):
        with pytest.raises(RecipeError, match=next(iter(wrong))):
            resolve("objectives", {"name": "neighbourhood", **wrong}, "stage.1.objective", Objective)
