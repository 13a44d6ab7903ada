import numpy as np
import pytest
import torch

from diptych.data.corpus import Corpus
from diptych.errors import RunError, ScoreError
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.runs import cached_score, encoded_score, evaluate_encoded
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings

SETTINGS = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)


def encoded(images, texts, digest="one"):
    groups = np.arange(len(images)), np.repeat(np.arange(len(images)), len(texts) // len(images))
    return EncodedCorpus(SETTINGS, images, texts, *groups, digest)


def random_pair(seed):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=random), torch.randn(12, 4, generator=random)


def test_all_equal_embeddings_score_no_better_than_chance():
    result = evaluate_encoded([encoded(torch.ones(40, 4), torch.ones(200, 4))])
    assert result.metrics.rsum == 0  # every negative ties with the positive, and ties rank worse
    assert result.folds[0].images.tolist() == [196] * 40
    assert result.folds[0].texts.tolist() == [40] * 200


def test_an_ensemble_averages_scores():
    one, two = encoded(*random_pair(0)), encoded(*random_pair(1))
    mean = (one.images @ one.texts.T + two.images @ two.texts.T) / 2
    rows, columns = np.arange(6), np.arange(12) // 2
    best = mean.masked_fill(torch.from_numpy(rows[:, None] != columns), -torch.inf).amax(1)
    negatives = mean.masked_fill(torch.from_numpy(rows[:, None] == columns), -torch.inf)
    expected = 1 + (negatives >= best[:, None]).sum(1)
    assert evaluate_encoded([one, two]).folds[0].images.tolist() == expected.tolist()


def test_an_ensemble_of_different_corpora_is_refused():
    with pytest.raises(ScoreError, match="differ in their corpus"):
        evaluate_encoded([encoded(*random_pair(0)), encoded(*random_pair(0), digest="other")])


def test_encodings_come_back_from_a_file_and_score_without_weights(tmp_path):
    before = encoded(*random_pair(0))
    before.save(tmp_path / "a.safetensors")
    after = EncodedCorpus.load(tmp_path / "a.safetensors")
    assert after.settings == SETTINGS
    assert after.digest == "one"
    tile = encoded_score(after).against(slice(0, 12))(slice(0, 6))
    torch.testing.assert_close(tile, before.images @ before.texts.T)
    assert evaluate_encoded([after]).to_json() == evaluate_encoded([before]).to_json()


def test_what_is_no_file_of_encodings_is_refused(tmp_path):
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04rest of a pickle")
    with pytest.raises(RunError, match="pickled"):
        EncodedCorpus.load(tmp_path / "pickle.safetensors")
    before = encoded(*random_pair(0))
    before.save(tmp_path / "a.safetensors")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes((tmp_path / "a.safetensors").read_bytes()[:-10])
    with pytest.raises(RunError, match="damaged or truncated"):
        EncodedCorpus.load(cut)


def test_unmatched_images_and_texts_are_left_out_before_ranking():
    corpus = Corpus(
        "c",
        ["a", "b", "c"],
        np.array([0, 1, 2]),
        np.full(3, "test"),
        ["x", "y", "z"],
        np.array([0, 0, 7]),
        np.full(3, "test"),
    )
    matched = corpus.matched()
    assert matched.image_ids == ["a"]
    assert matched.texts == ["x", "y"]


def sets(images=70):
    random = torch.Generator().manual_seed(0)
    settings = SCANSettings(joint=4, image=RegionFeatureSettings(shape=(3, 4)), words=9)
    groups = np.arange(images), np.arange(2 * images) // 2
    regions, words = (torch.randn(size, generator=random) for size in ((images, 3, 4), (2 * images, 5, 4)))
    return EncodedCorpus(settings, regions, words, *groups, "one", encoded_by=settings.build())


def test_costly_scores_are_computed_once_and_are_the_same(monkeypatch):
    encodings = sets()
    plain = ranks(encoded_score(encodings), encodings.image_groups, encodings.text_groups)
    scored = []
    score = encodings.encoded_by.score

    def counted(images, texts):
        scored.append(len(images) * len(texts))
        return score(images, texts)

    monkeypatch.setattr(encodings.encoded_by, "score", counted)
    kept = cached_score([encodings])
    for _ in range(3):
        found = ranks(kept, encodings.image_groups, encodings.text_groups, block=999)
        assert found.images.tolist() == plain.images.tolist()
    assert sum(scored) == pytest.approx(70 * 140, rel=0.05)  # the last few images may be widened
    too_large = cached_score([encodings], most=70 * 140 - 1)
    del scored[:]
    ranks(too_large, encodings.image_groups, encodings.text_groups)
    assert scored
    assert evaluate_encoded([encodings], score=kept).to_json() == evaluate_encoded([encodings]).to_json()


def test_scores_of_embedding_models_are_not_kept(monkeypatch):
    pair = encoded(*random_pair(0))
    monkeypatch.setattr("diptych.evaluation.runs.matrix_score", None)
    assert evaluate_encoded([pair], score=cached_score([pair])).to_json() == evaluate_encoded([pair]).to_json()
