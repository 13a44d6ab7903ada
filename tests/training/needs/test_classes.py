"""Which class each group is, K-means among the groups' images, the steps of a classifier and where it is kept."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.corpus import Corpus, Features
from diptych.data.sampling.batch import PairBatch
from diptych.errors import RunError
from diptych.features.readers import FeatureReader
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_tensors, save_tensors
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.objectives.instance import BIAS, CLASSIFIER, Instance
from diptych.objectives.objective import ObjectiveContext
from diptych.training.engine.checkpoint import save_objective_state
from diptych.training.inputs.group_classes import GroupClasses, group_classes
from diptych.training.needs.classes import Classes, SavedClassifier
from diptych.training.prepare import make_step
from diptych.training.recipe import Optimiser, Stage

# Groups 3, 5, 8 and 9 with 2, 1, 2 and 1 images: the first two lie together, and so do the last two.
GROUPS = [3, 5, 8, 3, 9, 8]
VECTORS = [[0, 0], [1, 0], [8, 9], [1, 1], [9, 9], [10, 8]]


def corpus(groups=GROUPS, vectors=VECTORS, texts=None):
    texts = sorted(set(groups)) if texts is None else texts
    return Corpus(
        "some",
        [f"photo {number}" for number in range(len(groups))],
        np.array(groups),
        np.array(["train"] * len(groups)),
        [f"text {group}" for group in texts],
        np.array(texts),
        np.array(["train"] * len(texts)),
        features=Features([np.array(vectors, np.float32)]),
    )


SIZE = 5


def context(objective, train, embedding_dim=SIZE):
    """What `SavedClassifier.fits` reads of a stage."""
    model = SimpleNamespace(matcher=SimpleNamespace(embedding_dim=embedding_dim))
    return SimpleNamespace(stage=SimpleNamespace(objective=objective), train=train, model=model)


def fits(saved, objective, train, embedding_dim=SIZE):
    return saved.fits(context(objective, train, embedding_dim), objective.need_options("classes"))


def kept_by(tmp_path, objective, train, name="best"):
    """A classifier of random numbers as a stage keeps it, and its numbers."""
    weights = tmp_path / name / "weights.safetensors"
    weights.parent.mkdir()
    clusters = objective.clusters
    classes = group_classes(train, clusters, lambda: FeatureReader(train.features), 0, lambda *_: None)
    need = Classes(classes, objective.need_options("classes"))
    sizes = ObjectiveContext(SIZE, {"classes": need.size})
    parameters = {name: torch.randn(start.shape) for name, start in objective.initial_parameters(sizes).items()}
    save_objective_state(weights, SimpleNamespace(needs=[need], parameters=parameters))
    return SavedClassifier.beside(weights), parameters


def test_a_kept_classifier_comes_back_as_it_was(tmp_path):
    objective, train = Instance(bias=True), corpus()
    kept, learned = kept_by(tmp_path, objective, train)
    assert kept.path == tmp_path / "best" / "objective.safetensors"
    assert kept.parameters.keys() == learned.keys() == {CLASSIFIER, BIAS}
    assert kept.classes.groups.tolist() == [3, 5, 8, 9]
    assert fits(kept, objective, train)
    fresh = objective.initial_parameters(ObjectiveContext(SIZE, {"classes": 4}))
    assert Classes(kept.classes, objective.need_options("classes"), kept).make_parameters(fresh) is None
    assert all(torch.equal(fresh[name], learned[name]) for name in learned)
    assert load_file(kept.path).keys() >= {CLASSIFIER, BIAS, "groups", "labels"}


@pytest.mark.parametrize(
    ("objective", "train", "embedding_dim"),
    [
        (Instance(), corpus(groups=[3, 5, 8, 3, 7, 8]), SIZE),
        (Instance(), corpus(groups=[3, 5, 8, 3, 5, 8]), SIZE),
        (Instance(bias=True), corpus(), SIZE),
        (Instance(clusters=2), corpus(), SIZE),
        (Instance(), corpus(), SIZE + 1),
        (Instance(rank=1.0, visual=0.0, textual=0.0), corpus(), SIZE),
    ],
    ids=["another group", "fewer groups", "a bias", "clusters", "another size", "no classes"],
)
def test_a_classifier_of_something_else_does_not_fit(objective, train, embedding_dim, tmp_path):
    kept, _ = kept_by(tmp_path, Instance(), corpus())
    assert fits(kept, Instance(), corpus())
    assert fits(kept, Instance(rank=2.0, textual=0.5, sampled=3, classes_at_once=2), corpus())
    assert not fits(kept, objective, train, embedding_dim)


def test_a_classifier_of_clusters_goes_on_with_as_many(tmp_path):
    kept, _ = kept_by(tmp_path, Instance(clusters=2), corpus())
    assert fits(kept, Instance(clusters=2), corpus())
    assert not fits(kept, Instance(clusters=3), corpus())
    assert not fits(kept, Instance(), corpus())


def test_a_classifier_of_other_data_with_as_many_groups_does_not_fit(tmp_path):
    # Readers of data number the groups from 0 on: the numbers alone do not say what a class was.
    before = corpus(groups=[0, 1, 2, 0, 3, 2])
    kept, _ = kept_by(tmp_path, Instance(), before)
    other = Corpus(
        "other",
        [f"another {number}" for number in range(4)],
        np.arange(4),
        np.array(["train"] * 4),
        [f"another text {number}" for number in range(4)],
        np.arange(4),
        np.array(["train"] * 4),
        features=Features([np.zeros((4, 2), np.float32)]),
    )
    assert fits(kept, Instance(), before)
    assert not fits(kept, Instance(), other)


def test_without_classes_nothing_is_kept_and_what_was_there_goes(tmp_path):
    kept, learned = kept_by(tmp_path, Instance(), corpus())
    weights = kept.path.with_name("weights.safetensors")
    save_objective_state(weights, SimpleNamespace(needs=[], parameters=learned))
    assert not kept.path.exists()
    assert SavedClassifier.beside(weights) is None
    save_objective_state(weights, SimpleNamespace(needs=[], parameters={}))  # nothing to remove is fine, too
    assert "classes" not in Hinge().needs


REMEDY = r"; or delete this file to begin the stage with a fresh classifier$"


def test_a_damaged_classifier_is_named_with_what_to_do(tmp_path):
    kept, _ = kept_by(tmp_path, Instance(), corpus())
    kept.path.write_bytes(kept.path.read_bytes()[:-3])
    with pytest.raises(RunError, match=r"objective\.safetensors: damaged or truncated .*" + REMEDY) as caught:
        SavedClassifier.beside(kept.path.with_name("weights.safetensors"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", ["groups", "labels", "data"])
def test_a_classifier_without_a_table_is_named_with_what_to_do(table, tmp_path):
    kept, _ = kept_by(tmp_path, Instance(), corpus())
    tensors, about = load_tensors(kept.path)
    del tensors[table]
    save_tensors(kept.path, tensors, about)
    with pytest.raises(RunError, match=rf"objective\.safetensors: has no '{table}'" + REMEDY):
        SavedClassifier.beside(kept.path.with_name("weights.safetensors"))


def embedding_model():
    image = FeatureSettings(shape=(6,))
    return VSESettings(joint=SIZE, text=GRUSettings(hidden=SIZE, word=3), image=image, words=9).build()


@pytest.mark.parametrize("sampled", [None, 3], ids=["all", "sampled"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_classifier_decays_and_its_bias_does_not(optimiser, sampled):
    vse = embedding_model()
    stage = Stage(
        objective=Instance(bias=True, sampled=sampled), optimiser=Optimiser(name=optimiser, decay=0.1, rate=0.5)
    )
    need = Classes(GroupClasses(np.arange(7), np.arange(7)), stage.objective.need_options("classes"))
    step = make_step(vse, stage, torch.device("cpu"), [need])
    decays = {
        id(parameter): group["weight_decay"] for group in step.optimiser.param_groups for parameter in group["params"]
    }
    assert {name: decays[id(parameter)] for name, parameter in step.parameters.items()} == {CLASSIFIER: 0.1, BIAS: 0.0}
    assert all(
        group["multiple"] == 1
        for group in step.optimiser.param_groups
        if any(parameter is own for parameter in group["params"] for own in step.parameters.values())
    )
    saved, _ = need.saved_with_weights(dict(step.parameters))
    assert {name: tuple(saved[name].shape) for name in (CLASSIFIER, BIAS)} == {CLASSIFIER: (7, 5), BIAS: (7,)}


@pytest.mark.parametrize("sampled", [None, 3], ids=["all", "sampled"])
def test_a_learned_temperature_is_trained_kept_and_no_row_of_the_classifier(sampled):
    torch.manual_seed(0)
    objective = Instance(temperature=0.1, learn_temperature=True, sampled=sampled)
    stage = Stage(objective=objective, optimiser=Optimiser(name="sgd", rate=0.1))
    need = Classes(GroupClasses(np.arange(7), np.arange(7)), objective.need_options("classes"))
    step = make_step(embedding_model(), stage, torch.device("cpu"), [need])
    before = step.parameters["log_temperature"].item()
    ids, lengths, rows = np.array([[1, 4, 2], [1, 5, 2]]), np.array([3, 3]), np.arange(2)
    step(PairBatch(np.random.default_rng(0).standard_normal((2, 6), np.float32), rows, ids, lengths, rows, rows + 4))
    saved, _ = need.saved_with_weights(dict(step.parameters))
    assert saved["log_temperature"].item() == step.parameters["log_temperature"].item() != before
    assert saved[CLASSIFIER].shape == (7, SIZE)
    assert set(step.parameters) == {CLASSIFIER, "log_temperature"}
    assert len(step.parameters[CLASSIFIER]) == (sampled or 7)


def test_a_step_classifies_each_pair_as_its_group_says():
    # Pairs of three images, two of one group; texts in several pairs; groups with numbers of their own.
    torch.manual_seed(0)
    vse = embedding_model().double()
    stage = Stage(objective=Instance(rank=1.0, textual=0.5), optimiser=Optimiser(name="sgd", rate=0.1))
    classes = GroupClasses(np.array([20, 30, 40, 50]), np.array([2, 0, 1, 2]))
    need = Classes(classes, stage.objective.need_options("classes"))
    step = make_step(vse, stage, torch.device("cpu"), [need])
    step.parameters[CLASSIFIER].data = step.parameters[CLASSIFIER].data.double()
    image_of, text_of, groups = np.array([0, 1, 2, 0]), np.array([0, 1, 2, 2]), np.array([40, 20, 40, 40])
    ids, lengths = np.array([[1, 4, 2], [1, 5, 2], [1, 6, 2]]), np.array([3, 3, 3])
    made = PairBatch(np.random.default_rng(0).standard_normal((3, 6)), image_of, ids, lengths, text_of, groups)
    images = vse.encode_images(torch.from_numpy(made.images)).detach()
    texts = vse.encode_texts(Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))).detach()
    classifier = step.parameters[CLASSIFIER].detach().clone()

    def lost(vectors, of):
        logarithms = (vectors @ classifier.t()).log_softmax(1)
        return -sum(logarithms[row, label] for row, label in zip(of, [1, 2, 1, 1], strict=True)) / 4

    loss, _ = step(made)
    torch.testing.assert_close(loss.terms["visual"], lost(images, image_of))
    torch.testing.assert_close(loss.terms["textual"], 0.5 * lost(texts, text_of))
    scores = (images @ texts.t())[image_of][:, text_of]
    negative = [1, 2, 1, 1]  # the first pair behind that is of another group
    expected = sum((1 - scores[pair, pair] + scores[pair, other]).clamp(min=0) for pair, other in enumerate(negative))
    torch.testing.assert_close(loss.terms["image_to_text"], expected / 4)
    assert not torch.equal(step.parameters[CLASSIFIER].detach(), classifier)
    saved, header = need.saved_with_weights(dict(step.parameters))
    assert torch.equal(saved[CLASSIFIER], step.parameters[CLASSIFIER])
    assert header == {"classes": 3}
