from types import SimpleNamespace

import numpy as np
import pytest

from diptych.data.corpus import Corpus, Features
from diptych.errors import RecipeError
from diptych.features.readers import FeatureReader
from diptych.training.inputs import group_classes as module
from diptych.training.inputs.group_classes import GroupClasses, group_classes

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


def found(train, clusters=None, reader=unwanted, seed=0, progress=lambda *_: None):
    return group_classes(train, clusters, reader, seed, progress)


def reader_of(train):
    return lambda: FeatureReader(train.features)


def test_every_group_is_a_class_however_many_images_and_texts_it_has():
    classes = found(corpus(texts=[9, 3, 3, 8, 5, 3]))
    assert classes.groups.tolist() == [3, 5, 8, 9]
    assert classes.labels.tolist() == [0, 1, 2, 3]
    assert classes.count == 4
    assert classes.of(np.array([9, 3, 3, 8])).tolist() == [3, 0, 0, 2]


def test_classes_are_kept_as_tensors():
    classes = GroupClasses(np.array([2, 4, 7]), np.array([1, 0, 1]))
    again = GroupClasses.of_tensors(classes.tensors())
    assert again.count == 2
    assert again.of(np.array([7, 4])).tolist() == [1, 0]


@pytest.mark.parametrize("at_once", [1, 4, 1024])
def test_clusters_put_groups_together_whose_images_look_alike(at_once, monkeypatch):
    monkeypatch.setattr(module, "IMAGES_AT_ONCE", at_once)
    train, told = corpus(), []
    classes = found(train, 2, reader_of(train), progress=lambda *step: told.append(step))
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
    found(train, 3, reader_of(train), seed=7)
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
    found(corpus(), 2, lambda: reader)
    np.testing.assert_allclose(seen[0], [[1, 1], [1, 0], [9, 8.5], [9, 9]])


def test_clusters_of_pixels_are_refused():
    reader = SimpleNamespace(read=lambda images: (np.zeros((len(images), 1, 3, 4, 4), np.uint8), images >= 0))
    with pytest.raises(RecipeError, match=r"^objective\.clusters: .* stored features; freeze the backbone"):
        found(corpus(), 2, lambda: reader)
