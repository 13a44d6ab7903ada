import json
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.data.formats.scenes import make_scenes
from diptych.errors import ScoreError
from diptych.evaluation import resumable, runs
from diptych.evaluation.metrics.ranks import RankCounter, ranks
from diptych.evaluation.runs import cached_score, encoded_score, evaluate, evaluate_encoded, evaluate_matrix, open_run
from diptych.features.readers import StoreOptions, image_reader
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.backbone import BackboneSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

SETTINGS = VSESettings(joint=4, text=GRUSettings(hidden=4), image=FeatureSettings(shape=(4,)), words=9)


def encoded(images, texts, digest="one"):
    groups = np.arange(len(images)), np.repeat(np.arange(len(images)), len(texts) // len(images))
    return EncodedCorpus(SETTINGS, images, texts, *groups, digest)


def random_pair(seed):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=random), torch.randn(12, 4, generator=random)


def test_equal_embeddings_score_no_better_than_chance():
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


def test_an_interrupted_evaluation_continues(tmp_path, monkeypatch):
    one, two, file = encoded(*random_pair(0)), encoded(*random_pair(1)), tmp_path / "found.json"
    counted, stopped = [], threading.Event()
    collect = RankCounter.collect_negatives

    def counting(self, *tile):
        collect(self, *tile)
        counted.append(tile)
        if len(counted) == 3:
            stopped.set()

    def evaluated(*of, **options):
        counted.clear()
        stopped.clear()
        return evaluate_encoded(of, resume=file, **options).to_json(), len(counted)

    monkeypatch.setattr(RankCounter, "collect_negatives", counting)
    monkeypatch.setattr(runs, "BLOCK", 9)
    monkeypatch.setattr(resumable, "interrupt_event", lambda: nullcontext(stopped))
    with pytest.raises(KeyboardInterrupt):
        evaluated(one, two)
    assert (tmp_path / "found.json.partial").is_file()
    monkeypatch.setattr(stopped, "set", lambda: None)
    expected = evaluate_encoded([one, two]).to_json()
    with monkeypatch.context() as patch:  # neither other encodings nor other folds
        patch.setattr(resumable.ResumablePasses, "remove", lambda self: None)
        tiles = [evaluated(two, one)[1], evaluated(one, two, folds=2)[1]]
    assert min(tiles) > 3
    found, visited = evaluated(one, two)
    assert (found, visited) == (expected, tiles[0] - 3)
    assert list(tmp_path.iterdir()) == []


def test_an_ensemble_of_different_corpora_is_refused():
    with pytest.raises(ScoreError, match="differ in their corpus"):
        evaluate_encoded([encoded(*random_pair(0)), encoded(*random_pair(0), digest="other")])


def test_encodings_from_a_file_are_evaluated_without_weights(tmp_path):
    before = encoded(*random_pair(0))
    before.save(tmp_path / "a.safetensors")
    after = EncodedCorpus.load(tmp_path / "a.safetensors")
    assert after.settings == SETTINGS
    assert after.digest == "one"
    tile = encoded_score(after).against(slice(0, 12))(slice(0, 6))
    torch.testing.assert_close(tile, before.images @ before.texts.T)
    assert evaluate_encoded([after]).to_json() == evaluate_encoded([before]).to_json()


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
    cached = cached_score([encodings])
    for _ in range(3):
        found = ranks(cached, encodings.image_groups, encodings.text_groups, block=999)
        assert found.images.tolist() == plain.images.tolist()
    assert sum(scored) == pytest.approx(70 * 140, rel=0.05)  # the last few images may be padded
    too_large = cached_score([encodings], most=70 * 140 - 1)
    del scored[:]
    ranks(too_large, encodings.image_groups, encodings.text_groups)
    assert scored
    assert evaluate_encoded([encodings], score=cached).to_json() == evaluate_encoded([encodings]).to_json()


def test_scores_of_embedding_models_are_not_cached(monkeypatch):
    pair = encoded(*random_pair(0))
    monkeypatch.setattr("diptych.evaluation.runs.matrix_score", None)
    assert evaluate_encoded([pair], score=cached_score([pair])).to_json() == evaluate_encoded([pair]).to_json()


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(train=2, val=2, test=9, texts=2)


@pytest.fixture
def run(tmp_path, scenes, small_backbones):
    """The folder of a run with a frozen backbone."""
    vocabulary = Vocabulary.from_texts(scenes.texts, 1)
    settings = VSESettings(joint=8, text=GRUSettings(hidden=8, word=4), image=BackboneSettings(), words=len(vocabulary))
    with small_backbones():
        torch.manual_seed(0)
        save_matcher(tmp_path / "run" / "best" / "weights.safetensors", settings.build(), vocabulary, {})
        vocabulary.save(tmp_path / "run")
        yield tmp_path / "run"


def test_python_reads_the_feature_store_that_the_command_line_reads(run, scenes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    computed = evaluate(run, scenes, device="cpu")
    model = open_run(run, "cpu", features=None)
    store = StoreOptions(Path("features"), model.device, workers=0, create=True)
    image_reader(scenes.split("test"), model.matcher.image_input, model.matcher.pretrained, store=store)
    monkeypatch.setattr(type(model.matcher.pretrained), "forward", None)  # nothing can be computed
    assert evaluate(run, scenes, device="cpu").to_json() == computed.to_json()
    invoked = CliRunner().invoke(app, ["evaluate", str(run), "scenes:train=2,val=2,test=9,texts=2", "--json"])
    assert json.loads(invoked.stdout) == computed.to_json()
    with pytest.raises(TypeError):
        evaluate(run, scenes, device="cpu", features=None)


def test_a_run_is_opened_with_the_store_and_an_open_run_is_left_as_it_is(run):
    assert open_run(run).stores == Path("features")
    assert open_run(str(run), features="elsewhere").stores == Path("elsewhere")
    model = open_run(run, features=None)
    assert model.stores is None
    assert open_run(model, features="elsewhere") is model


def test_average_precision_is_measured_by_default_if_a_text_has_several_images():
    images, texts = random_pair(0)
    pairs = np.arange(6) // 2, np.arange(12) // 4
    several = EncodedCorpus(SETTINGS, images, texts, *pairs, "one")
    assert "i2t_map" in evaluate_encoded([several]).metrics.to_json()
    assert "i2t_map" not in evaluate_encoded([several], average_precision=False).metrics.to_json()
    single = encoded(images, texts)
    assert "i2t_map" not in evaluate_encoded([single]).metrics.to_json()
    assert "i2t_map" in evaluate_encoded([single], average_precision=True).metrics.to_json()


def test_a_saved_matrix_is_measured_as_its_scores_are(tmp_path):
    one = encoded(*random_pair(0))
    np.save(tmp_path / "scores.npy", (one.images @ one.texts.T).numpy())
    found = evaluate_matrix(tmp_path / "scores.npy", one.image_groups, one.text_groups, folds=2)
    assert found.to_json() == evaluate_encoded([one], folds=2).to_json()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        (b"\x93NUMPY rest", r"not a complete \.npy file"),
        (np.zeros(3), r"float64 of shape \(3,\); expected floats of shape \(images, texts\)"),
        (np.zeros((2, 4), int), r"int64 of shape \(2, 4\)"),
        (np.zeros((3, 4)), "scores of 3 images and 4 texts"),
    ],
    ids=["missing", "damaged", "flat", "integers", "other corpus"],
)
def test_a_matrix_that_cannot_be_measured_is_named(tmp_path, content, reason):
    path = tmp_path / "scores.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    with pytest.raises(ScoreError, match=rf"^{path}: {reason}"):
        evaluate_matrix(path, np.arange(2), np.arange(4) // 2)
