"""The training step against a plain loop, and the parts of a stage."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from diptych.data.sampling.offline import OfflineSettings
from diptych.data.sampling.pairs import PairBatch
from diptych.data.sampling.regions import PhraseSettings
from diptych.errors import RecipeError
from diptych.models.matchers.cca import CCASettings
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.tower import Tokens
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.correlation import Correlation
from diptych.objectives.hinge import Hinge
from diptych.objectives.logistic import Logistic
from diptych.objectives.neighbourhood import Neighbourhood
from diptych.objectives.objective import ScoredPairs
from diptych.training.engine.stage import (
    CollapseWatch,
    check_pairs,
    make_optimiser,
    set_rate,
    set_trainable,
    train_mode,
)
from diptych.training.engine.step import Step
from diptych.training.recipe import Batches, Optimiser, Stage, parse_recipe

CPU = torch.device("cpu")


def batch(seed, pairs=7, images=5):
    """Pairs of a few images, so that some share one; common beginnings; lengths from 2."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 7, pairs)
    ids = random.integers(4, 7, (pairs, int(lengths.max())))
    ids[:, 0] = 1
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = 0
    image_of = random.integers(0, images, pairs)
    distinct, image_of = np.unique(image_of, return_inverse=True)
    return PairBatch(random.standard_normal((len(distinct), 6)), image_of, ids, lengths, image_of + 100)


def plain_step(matcher, optimiser, made):
    """The step as a textbook writes it: an image a pair, torch's own GRU, loops over pairs for the loss."""
    images = torch.from_numpy(made.images[made.image_of])
    image = normalize(images @ matcher.project.weight.T + matcher.project.bias, dim=1)
    text = normalize(matcher.text.plain(Tokens(torch.from_numpy(made.ids), torch.from_numpy(made.lengths))), dim=1)
    loss = torch.zeros((), dtype=torch.float64)
    for k in range(len(made.groups)):
        own = image[k] @ text[k]
        others = [m for m in range(len(made.groups)) if made.groups[m] != made.groups[k]]
        if others:
            loss = loss + torch.stack([(0.2 + image[k] @ text[m] - own).clamp(min=0) for m in others]).max()
            loss = loss + torch.stack([(0.2 + image[m] @ text[k] - own).clamp(min=0) for m in others]).max()
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(matcher.parameters(), 2.0)
    optimiser.step()
    return loss.item()


def test_the_step_equals_a_plain_loop():
    torch.manual_seed(0)
    settings = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9)
    ours = settings.build().double()
    theirs = copy.deepcopy(ours)
    our_optimiser = make_optimiser(ours, Optimiser(rate=0.01))
    step = Step(ours, Hinge(), our_optimiser, CPU, clip=2.0)
    their_optimiser = torch.optim.Adam(theirs.parameters(), lr=0.01)
    start = copy.deepcopy(ours.state_dict())
    for seed in range(5):
        made = batch(seed)
        loss, _ = step(made)
        assert loss.total.item() == pytest.approx(plain_step(theirs, their_optimiser, made), abs=1e-10)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-8, atol=1e-10)
        assert not torch.equal(value, start[name]), f"{name} did not move: this test would prove nothing"


def test_the_gradient_is_clipped():
    torch.manual_seed(0)
    matcher = (
        VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9)
        .build()
        .double()
    )
    optimiser = make_optimiser(matcher, Optimiser())

    def norm(clip):
        Step(matcher, Hinge(), optimiser, CPU, clip)(batch(0))
        return torch.cat([parameter.grad.flatten() for parameter in matcher.parameters()]).norm().item()

    assert norm(0) > 0.5
    assert norm(0.5) == pytest.approx(0.5, rel=1e-4)


def test_a_part_can_have_a_rate_of_its_own():
    image = CNNSettings(pixels=16, width=2)
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=9).build()
    optimiser = make_optimiser(matcher, Optimiser(rate=0.1, parts={"image": 0.5, "image.layers.0": 0.25}))
    set_rate(optimiser, 0.01)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in matcher.named_parameters():
        multiple = 0.25 if name.startswith("image.layers.0.") else 0.5 if name.startswith("image.") else 1
        assert rates[id(parameter)] == pytest.approx(0.01 * multiple)
    with pytest.raises(RecipeError, match=r"optimiser.parts: the model has no part 'imag'; did you mean 'image'"):
        make_optimiser(matcher, Optimiser(parts={"imag": 0.5}))


def test_parts_become_trainable_by_name():
    matcher = VSESettings(
        joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9
    ).build()
    assert len(set_trainable(matcher, ("all",))) == len(list(matcher.parameters()))
    assert len(set_trainable(matcher, ("project",))) == 2
    assert len(set_trainable(matcher, ("text.words", "project"))) == 3
    assert not matcher.text.gru.weight_hh_l0.requires_grad


def equal_scores(value=0.3):
    return ScoredPairs(torch.full((4, 4), value), torch.eye(4, dtype=torch.bool))


def test_a_collapse_is_called_once_after_enough_steps_in_a_row():
    progress = CollapseWatch(Hinge(margin=0.2), 3)
    trap = 2 * 4 * 0.2
    assert [progress.collapsed(trap, equal_scores().summary()) for _ in range(5)] == [False, False, True, False, False]


@pytest.mark.parametrize(("parts", "moving"), [(("text",), False), (("image",), True), (("all",), True)])
def test_a_frozen_part_keeps_its_statistics(parts, moving):
    image = CNNSettings(pixels=16, width=2)
    matcher = VSESettings(joint=5, text=GRUSettings(hidden=5, word=3), image=image, words=9).build()
    set_trainable(matcher, parts)
    train_mode(matcher)
    before = copy.deepcopy(dict(matcher.named_buffers()))
    matcher.encode_images(torch.randint(0, 255, (4, 3, 16, 16), dtype=torch.uint8))
    changed = any(not torch.equal(value, before[name]) for name, value in matcher.named_buffers())
    assert changed == moving
    assert matcher.image.training == moving


@pytest.mark.parametrize("parts", [(), ("image",)])
def test_nothing_to_train_is_refused(parts):
    matcher = VSESettings(
        joint=5, text=GRUSettings(hidden=5, word=3), image=FeatureSettings(shape=(6,)), words=9
    ).build()
    with pytest.raises(RecipeError, match="nothing in these parts can be trained"):
        set_trainable(matcher, parts)


def test_a_way_out_of_the_trap_starts_the_count_again():
    progress = CollapseWatch(Hinge(margin=0.2), 3)
    progress.collapsed(1.6, equal_scores().summary())
    progress.collapsed(0.9, equal_scores().summary())
    assert progress.stuck == 0


def two_branch(**settings):
    towers = {"image": FeatureSettings(shape=(6,)), "text": GRUSettings(hidden=5, word=3), "words": 9}
    return TwoBranchSettings(image_layers=(5, 4), text_layers=(5, 4), dropout=0.0, **towers, **settings)


@pytest.mark.parametrize(
    ("given", "momentum"),
    [({}, 0.9), ({"momentum": 0.5}, 0.5), ({"momentum": 0.0}, 0.0)],
    ids=["usual", "half", "none"],
)
def test_gradient_descent_with_momentum_and_decay_is_what_a_loop_does(given, momentum):
    torch.manual_seed(0)
    ours = two_branch().build().double().train()
    theirs = copy.deepcopy(ours)
    with torch.no_grad():
        for each in (*ours.parameters(), *theirs.parameters()):
            each.add_(0.1)  # biases and the scale of a batch norm would decay, if they did
    optimiser = make_optimiser(ours, Optimiser(name="sgd", rate=0.1, decay=0.05, clip=0.0, **given))
    step = Step(ours, Neighbourhood(margin=0.5), optimiser, CPU)
    velocity = {name: torch.zeros_like(weight) for name, weight in theirs.named_parameters()}
    matrices = {name for name, weight in theirs.named_parameters() if weight.dim() == 2}
    assert {name.split(".")[-1] for name in velocity.keys() - matrices} >= {"bias", "weight"}
    for seed in range(3):
        set_rate(optimiser, rate := 0.1 / (seed + 1))
        step(batch(seed))
        theirs.zero_grad()
        Step(theirs, Neighbourhood(margin=0.5), optimiser, CPU).gradients(batch(seed))
        with torch.no_grad():
            for name, weight in theirs.named_parameters():
                pull = weight.grad + (0.05 * weight if name in matrices else 0)
                velocity[name] = momentum * velocity[name] + pull
                weight -= rate * velocity[name]
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-9, atol=1e-12)


def test_only_matrices_decay_those_of_the_objective_too():
    matcher = two_branch().build()
    learned = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(()))]
    optimiser = make_optimiser(matcher, Optimiser(decay=0.3, parts={"text_branch": 0.5}), learned)
    decays = {id(each): group["weight_decay"] for group in optimiser.param_groups for each in group["params"]}
    multiples = {id(each): group["multiple"] for group in optimiser.param_groups for each in group["params"]}
    for name, weight in matcher.named_parameters():
        assert decays[id(weight)] == (0.3 if weight.dim() > 1 else 0.0), name
        assert multiples[id(weight)] == (0.5 if name.startswith("text_branch.") else 1.0), name
    assert [decays[id(each)] for each in learned] == [0.3, 0.0, 0.0]
    assert [multiples[id(each)] for each in learned] == [1.0, 1.0, 1.0]
    assert len(decays) == len(list(matcher.parameters())) + len(learned)


def test_momentum_is_of_gradient_descent():
    stage = {"objective": {"name": "hinge"}, "optimiser": {"momentum": 0.5}}
    with pytest.raises(
        RecipeError, match=r"stage\.1\.optimiser\.momentum = 0\.5: is only for name = 'sgd'.*leave it out"
    ):
        parse_recipe({"stage": [stage]})
    stage["optimiser"]["name"] = "sgd"
    assert parse_recipe({"stage": [stage]}).stage[0].optimiser.momentum == 0.5


def test_a_stage_on_phrases_is_selected_by_localisation_unless_told():
    def select(**stage):
        return parse_recipe({"stage": [{"objective": {"name": "neighbourhood"}, **stage}]}).stage[0].select

    assert (select(), select(phrases={}), select(phrases={"rivals": 3})) == ("rsum", "phrase_sum", "phrase_sum")
    assert select(phrases={}, select="phrase_r1") == "phrase_r1"
    recipe = parse_recipe({"stage": [{"objective": {"name": "neighbourhood"}, "phrases": {"positives": "all"}}]})
    assert recipe.stage[0].phrases == PhraseSettings(positives="all")


PHRASES = PhraseSettings()
OFFLINE = OfflineSettings(lists="runs/teacher")
NO_MORE = r"batches: neighbours, rivals and phrases go with no offline, no chunk and no captioning model"


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (Stage(objective=Logistic()), r"batches\.rivals: 'logistic' scores.*set batches\.rivals = 1"),
        (Stage(objective=Neighbourhood(), batches=Batches(rivals=1), phrases=PHRASES), r"set phrases\.rivals"),
        (Stage(objective=Neighbourhood(), batches=Batches(neighbours=True), offline=OFFLINE), NO_MORE),
        (Stage(objective=Neighbourhood(), batches=Batches(rivals=2, chunk=4)), NO_MORE),
        (Stage(objective=Neighbourhood(), batches=Batches(chunk=4), phrases=PHRASES), NO_MORE),
        (
            Stage(objective=Neighbourhood(), batches=Batches(neighbours=True), phrases=PhraseSettings(positives="all")),
            r"phrases\.positives = 'all': every positive is in the batch; leave out batches\.neighbours",
        ),
        (Stage(objective=Correlation(), epochs=1), r"'correlation' and the model 'two_branch' do not go together"),
        (Stage(objective=Neighbourhood(text_to_text=0.2)), r"constraints need neighbours in the batch; set it to true"),
    ],
    ids=[
        *("rivals", "rivals of phrases", "offline", "chunk", "phrases in chunks", "all and neighbours", "correlation"),
        "constraints without neighbours",
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(stage, words):
    with pytest.raises(RecipeError, match=words) as caught:
        check_pairs(stage, two_branch().build())
    assert "\n" not in str(caught.value)


def test_a_model_with_a_loss_of_its_own_takes_plain_pairs_only():
    captioner = SimpleNamespace(
        extra_terms=("caption",), solves_in_closed_form=False, settings=SimpleNamespace(name="vsrn")
    )
    check_pairs(Stage(objective=Hinge()), captioner)
    with pytest.raises(RecipeError, match=NO_MORE):
        check_pairs(Stage(objective=Hinge(), batches=Batches(neighbours=True)), captioner)


def test_cca_is_solved_in_one_pass():
    towers = {"image": FeatureSettings(shape=(6,)), "text": GRUSettings(hidden=5, word=3), "words": 9}
    matcher = CCASettings(joint=2, **towers).build()
    check_pairs(Stage(objective=Correlation(), epochs=1), matcher)
    with pytest.raises(RecipeError, match="'hinge' and the model 'cca' do not go together"):
        check_pairs(Stage(objective=Hinge(), epochs=1), matcher)
    for stage in (
        Stage(objective=Correlation(), epochs=2),
        Stage(objective=Correlation(), epochs=1, batches=Batches(neighbours=True)),
    ):
        with pytest.raises(RecipeError, match="solved in one pass over the pairs; set epochs = 1, no neighbours"):
            check_pairs(stage, matcher)


@pytest.mark.parametrize(
    "stage",
    [
        Stage(objective=Neighbourhood(text_to_text=0.2), batches=Batches(neighbours=True)),
        Stage(objective=Logistic(), batches=Batches(rivals=1)),
        Stage(objective=Logistic(), phrases=PhraseSettings(positives="all", rivals=1)),
        Stage(objective=Neighbourhood(), batches=Batches(neighbours=True), phrases=PHRASES),
        Stage(objective=Hinge(), batches=Batches(chunk=4)),
        Stage(objective=Hinge(), offline=OFFLINE),
    ],
    ids=["neighbours", "rivals", "all positives", "phrases", "chunk", "offline"],
)
def test_what_goes_together_is_taken(stage):
    check_pairs(stage, two_branch().build())
