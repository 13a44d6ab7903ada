from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.errors import RunError
from diptych.models.store import load_tensors, save_tensors
from diptych.models.text_towers.fisher import FisherSettings
from diptych.models.text_towers.tfidf import TfidfSettings
from diptych.models.towers import Tokens
from diptych.text.vocabulary import TokenTable
from diptych.text.word_vectors import WordVectors
from diptych.training import texts
from diptych.training.texts import fit_texts, known_texts, text_features

WORDS = 20
SETTINGS = FisherSettings(word=2, centres=2, size=3, iterations=5)


def table(rows):
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return TokenTable(np.concatenate(rows).astype(np.int32), offsets)


def drawn(seed=0):
    random = np.random.default_rng(seed)
    return table([[1, *random.integers(4, WORDS, 4), 2] for _ in range(30)])


def vectors(seed=0):
    found = np.arange(WORDS) > 3
    values = np.random.default_rng(seed).standard_normal((WORDS, 2)).astype(np.float32)
    return WordVectors(values * found[:, None], found)


def fit(stores, settings=SETTINGS, train=None, words=None, digest="words"):
    tower = settings.build(WORDS)
    return tower, fit_texts(tower, settings, train or drawn(), words or vectors(), digest, stores)


def test_a_fit_is_computed_once(tmp_path):
    first, computed = fit(tmp_path)
    second, again = fit(tmp_path)
    assert (computed, again) == (True, False)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
    (file,) = (tmp_path / "texts").iterdir()
    assert file.name.startswith("fisher-")
    assert file.suffix == ".safetensors"


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": SETTINGS.model_copy(update={"seed": 1})},
        {"train": drawn(1)},
        {"train": table([*np.split(drawn().flat, 30)[:28], np.concatenate(np.split(drawn().flat, 30)[28:])])},
        {"words": vectors(1)},
        {"words": replace(vectors(), found=np.arange(WORDS) > 4)},
        {"digest": "other words"},
    ],
    ids=["settings", "texts", "cuts of the texts", "vectors", "found", "vocabulary"],
)
def test_anything_else_is_another_fit(changes, tmp_path):
    fit(tmp_path)
    assert fit(tmp_path, **changes)[1]
    assert len(list((tmp_path / "texts").iterdir())) == 2


def test_a_tower_without_vectors_is_kept_too(tmp_path):
    for computed in (True, False):
        tower = TfidfSettings().build(WORDS)
        assert fit_texts(tower, TfidfSettings(), drawn(), None, "words", tmp_path) is computed
        assert tower.rarity.all()


def test_a_damaged_or_foreign_fit_is_one_line_with_a_remedy(tmp_path):
    fit(tmp_path)
    (file,) = (tmp_path / "texts").iterdir()
    whole, (tensors, about) = file.read_bytes(), load_tensors(file)
    file.write_bytes(whole[:-9])
    with pytest.raises(RunError, match=r"damaged or truncated .*delete it, and it is fitted again$"):
        fit(tmp_path)
    save_tensors(file, tensors, {**about, "digest": "another"})
    with pytest.raises(RunError, match=r"not the fit that its name says; delete it, and it is fitted again$"):
        fit(tmp_path)
    save_tensors(file, {**tensors, "scales": tensors["scales"][:1]}, about)
    with pytest.raises(RunError, match=r"not the fit that its name says"):
        fit(tmp_path)


def test_a_fit_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(Exception, match="rank"):
        fit(tmp_path, train=table([[1, 4, 5, 6, 7, 2]] * 3), settings=SETTINGS.model_copy(update={"ica": False}))
    assert not (tmp_path / "texts").exists()


CPU = torch.device("cpu")


def test_features_of_all_texts_each_distinct_one_once(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "TEXTS_AT_ONCE", 4)
    tower, _ = fit(tmp_path)
    rows = [row.tolist() for row in np.split(drawn(2).flat, 30)]
    rows = rows[:9] + rows[:5] + [[1, 3, 2]] + rows[3:4]
    told = []
    features = text_features(tower, table(rows), CPU, tmp_path, lambda *each: told.append(each))
    assert (len(features), len(features.rows)) == (16, 10)
    assert told == [(4, 10), (8, 10), (10, 10)]
    asked = np.array([15, 0, 14, 3])
    assert features[asked].dtype == np.float32
    for place, text in enumerate(asked):
        ids = torch.tensor([rows[text]])
        expected = tower(Tokens(ids, torch.tensor([ids.shape[1]])))[0].numpy()
        np.testing.assert_allclose(features[asked][place], expected, atol=1e-5)
    assert np.array_equal(features[np.array([0])], features[np.array([9])])
    assert known_texts(tower, table(rows), CPU).tolist() == [True] * 14 + [False, True]


def test_features_are_kept_and_belong_to_tower_and_texts(tmp_path, monkeypatch):
    tower, _ = fit(tmp_path)
    some, others = table([[1, 4, 5, 2], [1, 6, 2]]), table([[1, 4, 5, 2], [1, 7, 2]])
    first = text_features(tower, some, CPU, tmp_path).rows.copy()
    with monkeypatch.context() as patch:
        patch.setattr(texts, "put_features", None)  # a second time nothing is computed
        np.testing.assert_array_equal(text_features(tower, some, CPU, tmp_path).rows, first)
        with pytest.raises(TypeError):
            text_features(tower, others, CPU, tmp_path)
        tower.scales *= 2
        with pytest.raises(TypeError):
            text_features(tower, some, CPU, tmp_path)
    assert not list((tmp_path / "texts").glob(".*"))
    (file,) = (tmp_path / "texts").glob("*.npy")
    tower.scales /= 2
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(RunError, match=r"damaged or truncated .*; delete it, and it is computed again"):
        text_features(tower, some, CPU, tmp_path)
