from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.formats.scenes import make_scenes
from diptych.errors import RunError
from diptych.model import Model
from diptych.models.matchers.two_branch import TwoBranchSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import load_tensors, save_tensors
from diptych.models.tower import Tokens
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.fisher import FisherSettings
from diptych.models.towers.text.mean import MeanSettings
from diptych.models.towers.text.tfidf import TfidfSettings
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import WordVectors
from diptych.training.inputs.pairs import StageTexts
from diptych.training.inputs.texts import fit_texts, known_texts
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback

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
    with pytest.raises(RunError, match=r"damaged or truncated .*delete it to fit again$"):
        fit(tmp_path)
    save_tensors(file, tensors, {**about, "digest": "another"})
    with pytest.raises(RunError, match=r"not the fit that its name says; delete it to fit again$"):
        fit(tmp_path)
    save_tensors(file, {**tensors, "scales": tensors["scales"][:1]}, about)
    with pytest.raises(RunError, match=r"not the fit that its name says"):
        fit(tmp_path)


def test_a_fit_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(Exception, match="rank"):
        fit(tmp_path, train=table([[1, 4, 5, 6, 7, 2]] * 3), settings=SETTINGS.model_copy(update={"ica": False}))
    assert not (tmp_path / "texts").exists()


CPU = torch.device("cpu")


def test_texts_without_a_known_word_are_found(tmp_path):
    tower, _ = fit(tmp_path)
    assert known_texts(tower, table([[1, 4, 2], [1, 3, 2], [1, 3, 9, 2]]), CPU).tolist() == [True, False, True]


def read_by_a_gru(stores):
    """What a stage does with its texts where the tower is trained, and the list of what it says."""
    vocabulary = Vocabulary(("red", "dog"), (2, 1), 1)
    settings = VSESettings(joint=2, text={"name": "gru", "hidden": 2, "word": 2}, image=FeatureSettings(shape=(2,)))
    trained = Model.from_matcher(settings.model_copy(update={"words": len(vocabulary)}).build(), vocabulary, CPU)
    said = []
    return StageTexts(trained, stores, lambda *_: None, said.append), said


@given(st.lists(st.lists(st.sampled_from(["red", "dog", "qqq", "Zzz", ","]), max_size=4).map(" ".join), min_size=1))
def test_texts_without_a_known_word_are_kept_and_reported(tmp_path_factory, some):
    stage, said = read_by_a_gru(tmp_path_factory.getbasetemp())
    assert stage.known(some).tolist() == list(range(len(some)))
    table = stage.table(some)
    expected = stage.model.vocabulary.encode_all(some)
    assert (table.flat.tolist(), table.offsets.tolist()) == (expected.flat.tolist(), expected.offsets.tolist())
    unknown = [text for text, known in zip(some, stage.model.known_texts(some), strict=True) if not known]
    if unknown:
        told = "1 training text" if len(unknown) == 1 else f"{len(unknown)} training texts"
        told = f"kept {told} without a known word, as good as empty to the model"
        assert said == [f"{told}; the first is {unknown[0]!r}"]
    else:
        assert said == []


def test_training_reports_texts_without_a_known_word(tmp_path):
    corpus = make_scenes(train=8, val=4, test=4, texts=2)
    lines = list(corpus.texts)
    lines[3], lines[5] = "Xyzzy!", "qwx"
    sizes = ["model.joint=8", "model.text.hidden=8", "model.text.word=4", "model.image.width=2"]
    recipe = load_recipe("scenes", [*sizes, "model.image.pixels=16", "stage.2.epochs=1"])
    for texts_of, told in ((corpus.texts, 0), (lines, len(recipe.stage))):
        callback = RecordingCallback()
        run = tmp_path / str(told)
        train(
            recipe,
            replace(corpus, texts=texts_of),
            run,
            device="cpu",
            workers=0,
            callbacks=[callback],
            features=tmp_path,
        )
        line = "kept 2 training texts without a known word, as good as empty to the model; the first is 'Xyzzy!'"
        assert callback.messages_with("known word") == [line] * told


@pytest.mark.parametrize("text", ["tfidf", "mean", "fisher"])
def test_a_branch_standardises_by_all_training_texts_however_they_are_encoded(text, tmp_path):
    towers = {
        "tfidf": TfidfSettings(),
        "mean": MeanSettings(word=2),
        "fisher": SETTINGS,  # whose vectors are computed once and stored
    }
    texts = ["red dog", "a red cat", "a dog", "cat dog cat", "red dog", "two cat"]
    vocabulary = Vocabulary(("red", "dog", "cat", "two"), (4, 4, 4, 1), 1)
    settings = TwoBranchSettings(
        image=FeatureSettings(shape=(2,)), text=towers[text], words=len(vocabulary), image_layers=(3,), text_layers=(3,)
    )
    matcher = settings.model_copy(update={"standardise": True}).build()
    for buffer in matcher.text.buffers():
        torch.manual_seed(1)
        buffer.copy_(torch.rand(buffer.shape) + 0.1 if buffer.is_floating_point() else torch.ones(buffer.shape))
    model = Model.from_matcher(matcher, vocabulary, CPU)
    StageTexts(model, tmp_path, lambda *_: None, print).standardise(texts)
    ids, lengths = vocabulary.encode_all(texts).batch(np.arange(len(texts)))
    vectors = matcher.text(Tokens(torch.from_numpy(ids), torch.from_numpy(lengths)))
    layer = matcher.text_branch.standardise
    torch.testing.assert_close(layer.mean, vectors.mean(0), atol=1e-6, rtol=1e-5)
    spread = vectors.std(0, correction=0)
    changes = spread > 1e-6
    torch.testing.assert_close(layer.deviation[changes], spread[changes], rtol=1e-4, atol=1e-6)
    assert changes.any()
    assert (layer.mean != 0).any()
