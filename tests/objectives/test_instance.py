"""The instance loss against loops over pairs and classes, written from the paper's equations in plain Python floats."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.sampling.extras import Extras
from diptych.errors import RecipeError
from diptych.objectives.extras import ClassifierInputs
from diptych.objectives.instance import BIAS, CLASSIFIER, Instance
from diptych.objectives.objective import Objective, ObjectiveContext, ScoredPairs
from diptych.registry import resolve

SIZE = 3


def made(seed, pairs=6, images=4, groups=3, classes=5, bias=False, correction=False):
    """Pairs of fewer images, some of one group, scored at random; their classes are those of their groups."""
    random = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    image_of = torch.randint(0, images, (pairs,), generator=random)
    image_of = torch.unique(image_of, return_inverse=True)[1]
    group_of_image = torch.randint(0, groups, (images,), generator=random)
    class_of_group = torch.randperm(classes, generator=random)[:groups]
    of_pairs = group_of_image[image_of]
    parameters = {CLASSIFIER: numbers(classes, SIZE)} | ({BIAS: numbers(classes)} if bias else {})
    inputs = ClassifierInputs(
        numbers(int(image_of.max()) + 1, SIZE),
        numbers(pairs, SIZE),
        image_of,
        torch.randperm(pairs, generator=random),
        class_of_group[of_pairs],
        numbers(classes) if correction else None,
    )
    scores = numbers(pairs, pairs) / 2
    return ScoredPairs(scores, of_pairs[:, None] == of_pairs, Extras(inputs), parameters)


def logits_of(feature, batch):
    """W^T f, a class a number."""
    rows = batch.parameters[CLASSIFIER].tolist()
    offsets = [0.0] * len(rows)
    for added in (batch.parameters.get(BIAS), batch.extras[ClassifierInputs].logit_correction):
        offsets = offsets if added is None else [a + b for a, b in zip(offsets, added.tolist(), strict=True)]
    return [
        math.fsum(w * f for w, f in zip(row, feature, strict=True)) + b for row, b in zip(rows, offsets, strict=True)
    ]


def classified(features, of, batch):
    """Eq. 5-8: the mean over pairs of -log P(c), and the share for which another class is as likely."""
    lost, wrong = [], 0
    for pair, row in enumerate(of.tolist()):
        exponentials = [math.exp(logit) for logit in logits_of(features[row].tolist(), batch)]
        own = exponentials[int(batch.extras[ClassifierInputs].classes[pair])]
        lost.append(-math.log(own / math.fsum(exponentials)))
        wrong += sum(each >= own for each in exponentials) != 1
    return math.fsum(lost) / len(lost), wrong / len(lost)


def ranked(batch, margin):
    """Eq. 4: the negatives of a pair are image and text of the first pair behind it that is of another group."""
    scores, positives = batch.scores.tolist(), batch.positives.tolist()
    pairs = len(scores)
    of_images = of_texts = 0.0
    for pair in range(pairs):
        behind = [(pair + step) % pairs for step in range(1, pairs)]
        negative = next((other for other in behind if not positives[pair][other]), None)
        if negative is not None:
            of_images += max(0.0, margin - (scores[pair][pair] - scores[pair][negative]))
            of_texts += max(0.0, margin - (scores[pair][pair] - scores[negative][pair]))
    return of_images / pairs, of_texts / pairs


def reference(batch, rank, visual, textual, margin=1.0):
    """Eq. 9 term by term, the terms without weight left out, and the errors of the classifier."""
    terms, errors, found = {}, {}, batch.extras[ClassifierInputs]
    if rank:
        of_images, of_texts = ranked(batch, margin)
        terms |= {"image_to_text": rank * of_images, "text_to_image": rank * of_texts}
    if visual:
        value, errors["visual"] = classified(found.images, found.image_of, batch)
        terms["visual"] = visual * value
    if textual:
        value, errors["textual"] = classified(found.texts, found.text_of, batch)
        terms["textual"] = textual * value
    return terms, errors


WEIGHTS = st.sampled_from([0.0, 0.1, 1.0, 2.0])


@given(
    st.integers(0, 10_000),
    st.integers(1, 7),
    st.tuples(WEIGHTS, WEIGHTS, WEIGHTS).filter(any),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 1, 2, 5, 9]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_terms_and_errors_equal_the_equations(seed, pairs, weights, bias, correction, at_once, margin):
    batch = made(seed, pairs, bias=bias, correction=correction)
    rank, visual, textual = weights
    numbers = {"rank": rank, "visual": visual, "textual": textual, "margin": margin}
    loss = Instance(**numbers, bias=bias, classes_at_once=at_once).loss(batch)
    terms, errors = reference(batch, **numbers)
    assert {name: term.item() for name, term in loss.terms.items()} == pytest.approx(terms, abs=1e-9)
    assert {name: share.item() for name, share in loss.error_rates.items()} == pytest.approx(errors, abs=1e-6)
    assert loss.total.item() == pytest.approx(math.fsum(terms.values()), abs=1e-9)
    assert loss.is_mean


def leaves(batch):
    """What a gradient goes to."""
    inputs = [
        batch.scores,
        batch.extras[ClassifierInputs].images,
        batch.extras[ClassifierInputs].texts,
        *batch.parameters.values(),
    ]
    return [each.requires_grad_() for each in inputs]


def plain(batch, rank, visual, textual, margin):
    """The same equations in tensors, a pair at a time, for autograd."""
    found, pairs = batch.extras[ClassifierInputs], len(batch.scores)
    total = 0 * batch.scores.sum()  # all pairs may be of one group
    for pair in range(pairs):
        others = [(pair + step) % pairs for step in range(1, pairs)]
        negative = next((other for other in others if not batch.positives[pair, other]), None)
        if negative is not None:
            own = batch.scores[pair, pair]
            total = total + rank * (margin - own + batch.scores[pair, negative]).clamp(min=0)
            total = total + rank * (margin - own + batch.scores[negative, pair]).clamp(min=0)
        for weight, feature in (
            (visual, found.images[found.image_of[pair]]),
            (textual, found.texts[found.text_of[pair]]),
        ):
            logits = batch.parameters[CLASSIFIER] @ feature
            for added in (batch.parameters.get(BIAS), found.logit_correction):
                logits = logits if added is None else logits + added
            likely = logits.exp() / logits.exp().sum()
            total = total - weight * likely[found.classes[pair]].log()
    return total / pairs


@pytest.mark.parametrize("at_once", [None, 1, 2, 5])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("correction", [False, True], ids=["all classes", "some classes"])
def test_gradients_equal_those_of_the_equations(at_once, bias, correction):
    weights = {"rank": 2.0, "visual": 0.5, "textual": 1.5, "margin": 0.7}
    for seed in range(2):
        batch = made(seed, bias=bias, correction=correction)
        inputs = leaves(batch)
        ours = torch.autograd.grad(Instance(**weights, bias=bias, classes_at_once=at_once).loss(batch).total, inputs)
        theirs = torch.autograd.grad(plain(batch, **weights), inputs)
        for got, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
        assert len(batch.extras[ClassifierInputs].images) < len(batch.extras[ClassifierInputs].classes), (
            "no image is in several pairs"
        )


def cosine_logits(feature, batch, temperature):
    """The cosine of a feature with each class over the temperature, plus what a sample adds."""
    length, logits = math.hypot(*feature), []
    for row in batch.parameters[CLASSIFIER].tolist():
        product = math.fsum(w * f for w, f in zip(row, feature, strict=True))
        logits.append(product / (length * math.hypot(*row)) / temperature)
    correction = batch.extras[ClassifierInputs].logit_correction
    return logits if correction is None else [a + b for a, b in zip(logits, correction.tolist(), strict=True)]


@given(
    st.integers(0, 10_000),
    st.integers(1, 7),
    st.sampled_from([0.05, 0.3, 2.0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 1, 2, 9]),
)
def test_with_a_temperature_the_logits_are_cosines(seed, pairs, temperature, learned, correction, at_once):
    batch = made(seed, pairs, correction=correction)
    start = 0.5 if learned else temperature
    objective = Instance(temperature=start, learn_temperature=learned, classes_at_once=at_once)
    parameters = batch.parameters | ({"log_temperature": torch.tensor(math.log(temperature))} if learned else {})
    loss = objective.loss(replace(batch, parameters=parameters))
    found = batch.extras[ClassifierInputs]
    for name, features, of in (("visual", found.images, found.image_of), ("textual", found.texts, found.text_of)):
        lost, wrong = [], 0
        for pair, row in enumerate(of.tolist()):
            logits = cosine_logits(features[row].tolist(), batch, temperature)
            own = logits[int(found.classes[pair])]
            highest = max(logits)
            lost.append(highest - own + math.log(math.fsum(math.exp(logit - highest) for logit in logits)))
            wrong += sum(each >= own for each in logits) != 1
        assert loss.terms[name].item() == pytest.approx(math.fsum(lost) / len(lost), rel=1e-6, abs=1e-7)
        assert loss.error_rates[name].item() == pytest.approx(wrong / len(lost), abs=1e-6)


@pytest.mark.parametrize("at_once", [None, 2])
@pytest.mark.parametrize("correction", [False, True], ids=["all classes", "some classes"])
def test_gradients_of_cosines_are_those_of_finite_differences(at_once, correction):
    batch = made(3, correction=correction)
    objective = Instance(temperature=0.2, learn_temperature=True, classes_at_once=at_once, textual=0.5)
    logarithm = torch.tensor(math.log(0.15), dtype=torch.float64, requires_grad=True)

    def total(images, texts, classifier, logarithm):
        found = replace(batch.extras[ClassifierInputs], images=images, texts=texts)
        parameters = {CLASSIFIER: classifier, "log_temperature": logarithm}
        return objective.loss(replace(batch, extras=Extras(found), parameters=parameters)).total

    inputs = [leaf for leaf in leaves(batch)[1:] if leaf is not None]
    assert torch.autograd.gradcheck(total, (*inputs, logarithm))


def test_with_cosines_no_length_counts():
    batch = made(2)
    objective = Instance(temperature=0.1)
    found = batch.extras[ClassifierInputs]
    longer = replace(found, images=3 * found.images, texts=found.texts / 7)
    grown = {CLASSIFIER: batch.parameters[CLASSIFIER] * torch.tensor([[0.1], [2.0], [5.0], [1.0], [30.0]])}
    other = replace(batch, extras=Extras(longer), parameters=grown)
    torch.testing.assert_close(objective.loss(other).total, objective.loss(batch).total)
    assert not torch.isclose(Instance().loss(other).total, Instance().loss(batch).total)


def test_a_learned_temperature_is_a_parameter_with_a_bound():
    sizes = ObjectiveContext(SIZE, {"classes": 5})
    assert list(Instance(temperature=0.1).initial_parameters(sizes)) == [CLASSIFIER]
    objective = Instance(temperature=0.1, learn_temperature=True)
    started = objective.initial_parameters(sizes)
    assert started["log_temperature"].item() == pytest.approx(math.log(0.1))
    batch = made(1)
    values = [
        objective.loss(replace(batch, parameters=batch.parameters | {"log_temperature": torch.tensor(low)})).total
        for low in (math.log(0.01), -20.0)
    ]
    torch.testing.assert_close(*values)
    module = objective.as_module(classes=5, embedding_dim=SIZE)
    images, texts = torch.randn(4, SIZE), torch.randn(4, SIZE)
    module(images=images, texts=texts, classes=[0, 1, 2, 3]).backward()
    assert module.log_temperature.grad.abs() > 0


def test_an_image_in_several_pairs_counts_once_for_each():
    batch = made(0, pairs=5, images=1)
    assert len(batch.extras[ClassifierInputs].images) == 1
    once = replace(
        batch.extras[ClassifierInputs],
        image_of=torch.zeros(1, dtype=torch.long),
        classes=batch.extras[ClassifierInputs].classes[:1],
    )
    images = batch.extras[ClassifierInputs].images.requires_grad_()
    gradients = []
    for found in (batch.extras[ClassifierInputs], once):
        loss = Instance(textual=0.0).loss(replace(batch, extras=Extras(found)))
        gradients.append(torch.autograd.grad(loss.total, images)[0])
    torch.testing.assert_close(*gradients)  # five pairs of five are one of one
    assert gradients[0].abs().sum() > 0


def test_both_sides_share_one_classifier():
    batch = made(1)
    weight = batch.parameters[CLASSIFIER].requires_grad_()
    both, images, texts = (
        torch.autograd.grad(Instance(visual=visual, textual=textual).loss(batch).total, weight)[0]
        for visual, textual in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0))
    )
    torch.testing.assert_close(both, images + texts)
    assert list(Instance().initial_parameters(ObjectiveContext(SIZE, {"classes": 9}))) == [CLASSIFIER]


def test_the_classifier_starts_with_a_row_a_class_and_a_bias_of_zero_where_asked():
    torch.manual_seed(0)
    learned = Instance(bias=True).initial_parameters(ObjectiveContext(40, {"classes": 60}))
    assert {name: tuple(start.shape) for name, start in learned.items()} == {CLASSIFIER: (60, 40), BIAS: (60,)}
    bound = math.sqrt(6 / 100)
    assert 0.9 * bound < learned[CLASSIFIER].abs().max() <= bound
    assert not learned[BIAS].any()
    assert (
        Instance(rank=1.0, visual=0.0, textual=0.0, bias=True).initial_parameters(ObjectiveContext(40, {"classes": 60}))
        == {}
    )


def test_the_defaults_are_the_papers_first_stage():
    objective = Instance()
    assert (objective.rank, objective.visual, objective.textual, objective.margin) == (0, 1, 1, 1)
    assert objective.negatives == "next"
    assert not objective.bias
    assert list(objective.loss(made(2)).terms) == ["visual", "textual"]
    assert list(Instance(rank=1.0).loss(made(2)).terms) == ["image_to_text", "text_to_image", "visual", "textual"]


@pytest.mark.parametrize("negatives", ["max", "sum", 0.5])
def test_the_ranking_term_takes_the_negatives_of_hinge_too(negatives):
    batch = made(3)
    scores, positives = batch.scores.tolist(), batch.positives.tolist()
    expected = 0.0
    for pair in range(len(scores)):
        others = [other for other in range(len(scores)) if not positives[pair][other]]
        for rivals in ([scores[pair][other] for other in others], [scores[other][pair] for other in others]):
            hinges = [max(0.0, 1 - scores[pair][pair] + rival) for rival in rivals]
            if negatives == 0.5:
                expected += math.sqrt(math.fsum(hinge**2 for hinge in hinges))
            else:
                expected += max(hinges) if negatives == "max" else math.fsum(hinges)
    loss = Instance(rank=2.0, visual=0.0, textual=0.0, negatives=negatives).loss(batch)
    assert loss.total.item() == pytest.approx(2 * expected / len(scores))


def equal_scores(groups):
    groups = torch.tensor(groups)
    return ScoredPairs(torch.full((len(groups), len(groups)), 0.7, dtype=torch.float64), groups[:, None] == groups)


@pytest.mark.parametrize("negatives", ["next", "max"])
@pytest.mark.parametrize("rank", [1.0, 3.0])
def test_ranking_alone_has_the_trap_of_hinges(negatives, rank):
    objective = Instance(rank=rank, visual=0.0, textual=0.0, margin=0.5, negatives=negatives)
    assert "classes" not in objective.needs
    batch = equal_scores([0, 0, 1, 2])
    loss = objective.loss(batch)  # without classes
    assert loss.error_rates == {}
    total = loss.total.item()
    assert total == pytest.approx(rank * 2 * 0.5)  # a pair, and a mean over pairs
    assert objective.has_collapsed(objective.summary(batch), total)
    assert not objective.has_collapsed(objective.summary(batch), 0.9 * total)
    spread = ScoredPairs(torch.linspace(0, 1, 16).view(4, 4), batch.positives)
    assert not objective.has_collapsed(objective.summary(spread), total)
    alone = equal_scores([3, 3])
    assert objective.loss(alone).total.item() == 0
    assert not objective.has_collapsed(objective.summary(alone), 0.0)
    assert "2 x margin" in objective.collapse_hint
    assert "visual = 1" in objective.collapse_hint


@pytest.mark.parametrize("rank", [0.0, 1.0])
def test_a_classifier_keeps_it_out_of_the_trap(rank):
    objective = Instance(rank=rank)
    assert "classes" in objective.needs
    batch = equal_scores([0, 1, 2])
    assert not any(objective.has_collapsed(objective.summary(batch), total) for total in (0.0, 2.0, 2.0 * rank))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"visual": 0, "textual": 0}, "nothing to minimise; set rank, visual or textual above 0"),
        ({"rank": -1}, "rank = -1"),
        ({"visual": -0.1}, "visual = -0.1"),
        ({"negatives": "hardest"}, "use 'max', 'sum', 'next' or a softness"),
        ({"sampled": 1}, "sampled = 1"),
        ({"clusters": 1}, "clusters = 1"),
        ({"classes_at_once": 0}, "classes_at_once = 0"),
        ({"bais": True}, "did you mean 'bias'"),
        ({"temperature": 0}, "temperature = 0"),
        ({"temperature": 0.1, "bias": True}, "cosines of the classes have no bias; leave out bias or temperature"),
        ({"learn_temperature": True}, "set the temperature that learning begins with"),
    ],
    ids=str,
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(RecipeError, match=r"^stage\.1\.objective") as raised:
        resolve("objectives", {"name": "instance", **settings}, "stage.1.objective", Objective)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
