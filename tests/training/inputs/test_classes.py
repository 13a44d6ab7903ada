"""Which class each group is, K-means among the groups' images, the steps of a classifier and where it is kept."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diptych.data.corpus import Corpus, Features
from diptych.data.sampling.pairs import PairBatch
from diptych.errors import DataError, RecipeError, RunError
from diptych.features.readers import FeatureReader
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_tensors, save_tensors
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.objectives.hinge import Hinge
from diptych.objectives.instance import BIAS, CLASSIFIER, Instance
from diptych.training.engine.stage import make_optimiser, prepare_step
from diptych.training.inputs import classes as module
from diptych.training.inputs.classes import Classes, stage_classes
from diptych.training.inputs.classifier import KeptClassifier, keep_classifier
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


def unwanted():
    raise AssertionError("nothing is to be read where each group is a class of its own")


def found(objective, train, reader=unwanted, seed=0, progress=lambda *_: None):
    return stage_classes(objective, train, reader, seed, progress)


def reader_of(train):
    return lambda: FeatureReader(train.features)


def test_every_group_is_a_class_however_many_images_and_texts_it_has():
    classes = found(Instance(), corpus(texts=[9, 3, 3, 8, 5, 3]))
    assert classes.groups.tolist() == [3, 5, 8, 9]
    assert classes.labels.tolist() == [0, 1, 2, 3]
    assert classes.count == 4
    assert classes.of(np.array([9, 3, 3, 8])).tolist() == [3, 0, 0, 2]


def test_classes_are_kept_as_tensors():
    classes = Classes(np.array([2, 4, 7]), np.array([1, 0, 1]))
    again = Classes.of_tensors(classes.tensors())
    assert again.count == 2
    assert again.of(np.array([7, 4])).tolist() == [1, 0]


@pytest.mark.parametrize("at_once", [1, 4, 1024])
def test_clusters_put_groups_together_whose_images_look_alike(at_once, monkeypatch):
    monkeypatch.setattr(module, "IMAGES_AT_ONCE", at_once)
    train, told = corpus(), []
    classes = found(Instance(clusters=2), train, reader_of(train), progress=lambda *step: told.append(step))
    assert classes.count == 2
    first, second, third, fourth = classes.labels.tolist()
    assert first == second != third == fourth
    assert told
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("shape", [(6, 1, 2), (6, 2, 2)], ids=["one view", "two views"])
def test_the_mean_of_a_groups_images_is_clustered_and_a_set_is_averaged_first(shape, monkeypatch):
    seen = []

    def watched(vectors, clusters, seed, *, progress):
        seen.append((vectors, clusters, seed))
        return np.arange(len(vectors)) % clusters

    monkeypatch.setattr(module, "kmeans", watched)
    vectors = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    train = corpus(vectors=vectors)
    found(Instance(clusters=3), train, reader_of(train), seed=7)
    ((means, clusters, seed),) = seen
    assert (clusters, seed) == (3, 7)
    of_images = [np.mean([view.tolist() for view in image], axis=0) for image in vectors]
    for row, group in enumerate([3, 5, 8, 9]):
        own = [vector for vector, other in zip(of_images, GROUPS, strict=True) if other == group]
        np.testing.assert_allclose(means[row], np.mean(own, axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("at_once", [1, 2, 1024])
@pytest.mark.parametrize("sets", [False, True], ids=["vectors", "sets"])
def test_unreadable_images_are_left_out_of_the_means(at_once, sets, monkeypatch):
    monkeypatch.setattr(module, "IMAGES_AT_ONCE", at_once)
    seen = []
    monkeypatch.setattr(module, "kmeans", lambda vectors, *_, **__: seen.append(vectors) or np.zeros(4, np.int64))
    vectors = np.array(VECTORS, np.float32)[1:]  # the first image, of group 3, cannot be read
    kept = Features([vectors[:, None].repeat(2, 1) if sets else vectors])
    reader = FeatureReader(kept, np.array([1, 2, 3, 4, 5]), {0: "not a picture"})
    found(Instance(clusters=2), corpus(), lambda: reader)
    np.testing.assert_allclose(seen[0], [[1, 1], [1, 0], [9, 8.5], [9, 9]])


@pytest.mark.parametrize("clusters", [4, 5])
def test_as_many_clusters_as_groups_are_refused(clusters):
    with pytest.raises(RecipeError, match=rf"^objective\.clusters = {clusters}: there are 4 groups; take fewer"):
        found(Instance(clusters=clusters), corpus())


def test_clusters_of_pixels_are_refused():
    reader = SimpleNamespace(read=lambda images: (np.zeros((len(images), 1, 3, 4, 4), np.uint8), images >= 0))
    with pytest.raises(RecipeError, match=r"^objective\.clusters: .* stored features; freeze the backbone"):
        found(Instance(clusters=2), corpus(), lambda: reader)


def test_one_group_alone_is_refused():
    with pytest.raises(DataError, match=r"^some: all training images and texts are of one group; there is nothing"):
        found(Instance(), corpus(groups=[3] * 6))


SIZE = 5


def matcher(embedding_dim=SIZE):
    return SimpleNamespace(embedding_dim=embedding_dim)


def kept_by(tmp_path, objective, train, name="best"):
    """A classifier of random numbers as a stage keeps it, and its numbers."""
    weights = tmp_path / name / "weights.safetensors"
    weights.parent.mkdir()
    classes = found(objective, train, reader_of(train))
    learned = {
        name: torch.randn(start.shape)
        for name, start in objective.start_learned(SimpleNamespace(size=SIZE, classes=classes.count)).items()
    }
    keep_classifier(weights, learned, classes)
    return KeptClassifier.beside(weights), learned


def test_a_kept_classifier_comes_back_as_it_was(tmp_path):
    objective, train = Instance(bias=True), corpus()
    kept, learned = kept_by(tmp_path, objective, train)
    assert kept.path == tmp_path / "best" / "objective.safetensors"
    assert kept.learned.keys() == learned.keys() == {CLASSIFIER, BIAS}
    assert kept.classes.groups.tolist() == [3, 5, 8, 9]
    assert kept.fits(objective, train, matcher())
    fresh = objective.start_learned(SimpleNamespace(size=SIZE, classes=4))
    kept.put_into(fresh)
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
    assert kept.fits(Instance(), corpus(), matcher())
    assert kept.fits(Instance(rank=2.0, textual=0.5, sampled=3, classes_at_once=2), corpus(), matcher())
    assert not kept.fits(objective, train, matcher(embedding_dim))


def test_a_classifier_of_clusters_goes_on_with_as_many(tmp_path):
    kept, _ = kept_by(tmp_path, Instance(clusters=2), corpus())
    assert kept.fits(Instance(clusters=2), corpus(), matcher())
    assert not kept.fits(Instance(clusters=3), corpus(), matcher())
    assert not kept.fits(Instance(), corpus(), matcher())


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
    assert kept.fits(Instance(), before, matcher())
    assert not kept.fits(Instance(), other, matcher())


def test_without_classes_nothing_is_kept_and_what_was_there_goes(tmp_path):
    kept, learned = kept_by(tmp_path, Instance(), corpus())
    weights = kept.path.with_name("weights.safetensors")
    keep_classifier(weights, learned, None)
    assert not kept.path.exists()
    assert KeptClassifier.beside(weights) is None
    keep_classifier(weights, {}, None)
    assert not Hinge().needs_classes


REMEDY = r"; or delete this file: the stage then begins with a fresh classifier$"


def test_a_damaged_classifier_is_named_with_what_to_do(tmp_path):
    kept, _ = kept_by(tmp_path, Instance(), corpus())
    kept.path.write_bytes(kept.path.read_bytes()[:-3])
    with pytest.raises(RunError, match=r"objective\.safetensors: damaged or truncated .*" + REMEDY) as caught:
        KeptClassifier.beside(kept.path.with_name("weights.safetensors"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", ["groups", "labels", "data"])
def test_a_classifier_without_a_table_is_named_with_what_to_do(table, tmp_path):
    kept, _ = kept_by(tmp_path, Instance(), corpus())
    tensors, about = load_tensors(kept.path)
    del tensors[table]
    save_tensors(kept.path, tensors, about)
    with pytest.raises(RunError, match=rf"objective\.safetensors: has no '{table}'" + REMEDY):
        KeptClassifier.beside(kept.path.with_name("weights.safetensors"))


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
    classes = Classes(np.arange(7), np.arange(7))
    step = prepare_step(vse, stage, torch.device("cpu"), classes)
    decays = {
        id(parameter): group["weight_decay"] for group in step.optimiser.param_groups for parameter in group["params"]
    }
    assert {name: decays[id(parameter)] for name, parameter in step.learned.items()} == {CLASSIFIER: 0.1, BIAS: 0.0}
    assert all(
        group["multiple"] == 1
        for group in step.optimiser.param_groups
        if any(parameter is own for parameter in group["params"] for own in step.learned.values())
    )
    assert {name: tuple(value.shape) for name, value in step.all_learned.items()} == {CLASSIFIER: (7, 5), BIAS: (7,)}


def test_nesterov_is_handed_to_sgd():
    vse = embedding_model()
    for wanted in (True, False):
        optimiser = make_optimiser(vse, Optimiser(name="sgd", nesterov=wanted))
        assert {group["nesterov"] for group in optimiser.param_groups} == {wanted}


def test_a_step_classifies_each_pair_as_its_group_says():
    # Pairs of three images, two of one group; texts in several pairs; groups with numbers of their own.
    torch.manual_seed(0)
    vse = embedding_model().double()
    stage = Stage(objective=Instance(rank=1.0, textual=0.5), optimiser=Optimiser(name="sgd", rate=0.1))
    classes = Classes(np.array([20, 30, 40, 50]), np.array([2, 0, 1, 2]))
    step = prepare_step(vse, stage, torch.device("cpu"), classes)
    step.learned[CLASSIFIER].data = step.learned[CLASSIFIER].data.double()
    image_of, text_of, groups = np.array([0, 1, 2, 0]), np.array([0, 1, 2, 2]), np.array([40, 20, 40, 40])
    ids, lengths = np.array([[1, 4, 2], [1, 5, 2], [1, 6, 2]]), np.array([3, 3, 3])
    made = PairBatch(np.random.default_rng(0).standard_normal((3, 6)), image_of, ids, lengths, groups, text_of=text_of)
    images = vse.encode_images(torch.from_numpy(made.images)).detach()
    texts = vse.encode_texts(Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))).detach()
    classifier = step.learned[CLASSIFIER].detach().clone()

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
    assert not torch.equal(step.learned[CLASSIFIER].detach(), classifier)
    assert torch.equal(step.all_learned[CLASSIFIER], step.learned[CLASSIFIER])
