from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from diptych.errors import RunError
from diptych.models.packaged import PackagedModule, PackageWeights
from diptych.models.tower import TextTower, Tokens
from diptych.models.towers.text.fisher import FisherSettings
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.word_vectors import WordVectors
from diptych.training.inputs import text_features as module
from diptych.training.inputs.text_features import TextFeatures, text_features

WORDS = 20
CPU = torch.device("cpu")
table = TokenTable.from_rows


class Encoder(nn.Module):
    """The mean of the words' vectors, with dropout that must never act."""

    def __init__(self):
        super().__init__()
        self.words, self.dropout = nn.Embedding(WORDS, 3), nn.Dropout(0.5)

    def forward(self, ids, lengths):
        texts = zip(ids, lengths, strict=True)
        return self.dropout(torch.stack([self.words(row[:length]).mean(0) for row, length in texts]))


class Tower(TextTower):
    """An encoder and a layer that is no part of the features."""

    caches_features = True
    features_at_once = 4
    feature_options: ClassVar[dict[str, str]] = {}
    feature_size = 3

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.layer, self.size = Encoder(), nn.Linear(3, 2), 2

    @property
    def feature_part(self):
        return self.encoder

    def features(self, tokens):
        return self.encoder(tokens.ids, tokens.lengths)

    def forward(self, tokens):
        return self.layer(self.features(tokens) if tokens.features is None else tokens.features)


def drawn(seed=0):
    random = np.random.default_rng(seed)
    return [[1, *random.integers(4, WORDS, random.integers(1, 7)), 2] for _ in range(9)]


def fisher():
    """A fitted tower, whose features are its output."""
    random, found = np.random.default_rng(0), np.arange(WORDS) > 3
    vectors = random.standard_normal((WORDS, 2)).astype(np.float32) * found[:, None]
    tower = FisherSettings(word=2, centres=2, size=3, iterations=5).build(WORDS)
    tower.fit(table([1, *random.integers(4, WORDS, 4), 2] for _ in range(30)), WordVectors(vectors, found))
    return tower


@pytest.mark.parametrize("tower", [Tower(), fisher()], ids=["encoder", "fitted"])
def test_features_of_all_texts_each_distinct_one_once(tmp_path, monkeypatch, tower):
    monkeypatch.setattr(type(tower), "features_at_once", 4)
    rows = drawn()
    rows = rows + rows[:5] + [[1, 4, 2]] + rows[3:4]
    told = []
    features = text_features(tower, table(rows), CPU, tmp_path, lambda *each: told.append(each))
    assert (len(features), len(features.rows)) == (16, 10)
    assert told == [(4, 10), (8, 10), (10, 10)]
    asked = np.array([15, 0, 14, 3])
    assert features[asked].dtype == np.float32
    for place, text in enumerate(asked):
        alone = Tokens(torch.tensor([rows[text]]), torch.tensor([len(rows[text])]))
        np.testing.assert_allclose(features[asked][place], tower.features(alone)[0].detach().numpy(), atol=1e-5)
    assert np.array_equal(features[np.array([0])], features[np.array([9])])


def test_features_are_kept_and_belong_to_encoder_and_texts(tmp_path, monkeypatch):
    tower, rows = Tower(), drawn()
    first = text_features(tower, table(rows), CPU, tmp_path).rows.copy()
    monkeypatch.setattr(module, "put_features", None)  # a second time nothing is computed
    with torch.no_grad():
        tower.layer.weight += 1  # behind the features
    np.testing.assert_array_equal(text_features(tower, table(rows), CPU, tmp_path).rows, first)

    def is_another(tower=tower, rows=rows):
        with pytest.raises(TypeError):
            text_features(tower, table(rows), CPU, tmp_path)

    is_another(rows=[*rows[1:], rows[0]])
    is_another(rows=[*rows[:7], [*rows[7], *rows[8]]])
    with monkeypatch.context() as patch:
        patch.setattr(Tower, "feature_options", {"layers": "all"})
        is_another()
    with torch.no_grad():
        tower.encoder.words.weight[7] += 1
    is_another()
    assert not list((tmp_path / "texts").glob(".*"))
    assert [file.name.split("-")[0] for file in (tmp_path / "texts").iterdir()] == ["tower"]


def test_features_of_another_package_are_others(tmp_path, monkeypatch):
    class Packaged(PackagedModule, Encoder):
        package_weights = PackageWeights("package", "1", "one")

    tower = Tower()
    tower.encoder = Packaged()
    text_features(tower, table(drawn()), CPU, tmp_path)
    monkeypatch.setattr(module, "put_features", None)
    text_features(tower, table(drawn()), CPU, tmp_path)
    monkeypatch.setattr(Packaged, "package_weights", PackageWeights("package", "1", "two"))
    with pytest.raises(TypeError):
        text_features(tower, table(drawn()), CPU, tmp_path)


def test_a_damaged_or_foreign_file_is_one_line_with_a_remedy(tmp_path):
    tower, some = Tower(), table(drawn())
    text_features(tower, some, CPU, tmp_path)
    (file,) = (tmp_path / "texts").glob("*.npy")
    whole = file.read_bytes()
    file.write_bytes(whole[:-8])
    with pytest.raises(RunError, match=r"damaged or truncated .*; delete it to compute it again"):
        text_features(tower, some, CPU, tmp_path)
    np.save(file, np.zeros((2, 3), np.float32))
    with pytest.raises(RunError, match=r"not the text features that its name says; delete it to compute them again"):
        text_features(tower, some, CPU, tmp_path)


def test_a_failure_leaves_no_file(tmp_path):
    def interrupted(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        text_features(Tower(), table(drawn()), CPU, tmp_path, interrupted)
    assert not list((tmp_path / "texts").iterdir())


@given(st.integers(0, 99), st.integers(1, 5), st.integers(1, 40))
def test_statistics_are_those_of_all_texts(seed, rows, texts):
    random = np.random.default_rng(seed)
    features = TextFeatures(random.normal(3, 2, (rows, 4)).astype(np.float32), random.integers(0, rows, texts))
    mean, deviation = features.statistics()
    every = features[np.arange(texts)].astype(np.float64)
    np.testing.assert_allclose(mean, every.mean(0), atol=1e-5)
    np.testing.assert_allclose(deviation, every.std(0), atol=1e-5)


def test_statistics_of_many_texts_are_taken_in_blocks():
    rows = np.random.default_rng(0).normal(size=(9000, 2)).astype(np.float32)
    mean, deviation = TextFeatures(rows, np.arange(9000)).statistics()
    np.testing.assert_allclose(mean, rows.mean(0), atol=1e-6)
    np.testing.assert_allclose(deviation, rows.std(0), atol=1e-6)
