"""Training on pieces of words end to end: the run carries its tokeniser, and everything asks it."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from diptych.errors import CallbackError, RecipeError, RunError
from diptych.index.entries import SearchRequest
from diptych.index.search import open_index
from diptych.index.sync import sync
from diptych.model import Model
from diptych.models.export.float16 import export_float16
from diptych.models.export.onnx import export_onnx
from diptych.text.tokenisers.bpe import BytePairs
from diptych.text.tokenisers.custom import CustomPieces
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.recipes import BASE, MODEL
from support.runs import assert_same_run

BPE = ["text.tokeniser=bpe", "text.size=90", "text.threshold=1"]
SENTENCE = "two reddish circles"


@pytest.fixture(scope="module")
def recipe(recipes):
    return recipes(MODEL + BASE, *BPE)


@pytest.fixture(scope="module")
def run(recipe, corpus, tmp_path_factory):
    return train(recipe, corpus, tmp_path_factory.mktemp("runs") / "pieces", device="cpu", workers=0)


@pytest.fixture(scope="module")
def export(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "onnx"
    export_onnx(run, folder)
    return folder


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_run_carries_its_tokeniser(run, corpus):
    assert not (run / "vocabulary.json").exists()
    tokeniser = load_tokeniser(run)
    assert tokeniser == BytePairs.from_texts(corpus.split("train").texts, 90, 1)
    assert len(tokeniser) <= 94
    model = Model.load(run, "cpu")
    assert model.matcher.text.words.num_embeddings == len(tokeniser)
    assert load_recipe(str(run / "recipe.toml")).text.size == 90
    with pytest.raises(RunError, match=f"^{run}: has no vocabulary, it reads pieces of words$"):
        _ = model.vocabulary


def test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(run, recipe, corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(recipe, corpus, tmp_path, device="cpu", workers=0, callbacks=[RecordingCallback([4])])
    train(recipe, corpus, tmp_path, resume=True, device="cpu", workers=0)
    assert_same_run(run, tmp_path)


def test_words_are_unknown_only_if_their_pieces_are(run, export):
    for model in (Model.load(run, "cpu"), Model.load(export)):
        assert model.unknown_words("Two REDDISH ☃☃ circles ☃☃") == ["☃☃"]
        assert model.known_texts(["☃☃", "reddish", ""]).tolist() == [False, True, False]


def test_a_run_and_its_exports_agree(run, export, tmp_path):
    export_float16(run, tmp_path / "half")
    model, exported, half = Model.load(run, "cpu"), Model.load(export), Model.load(tmp_path / "half", "cpu")
    assert model.identity == exported.identity != half.identity
    texts = ["two reddish circles", "☃", "", "a blue square above " * 9]
    expected = model.encode_texts(texts)
    np.testing.assert_allclose(exported.encode_texts(texts), expected, atol=1e-4)
    np.testing.assert_allclose(half.encode_texts(texts), expected, atol=1e-2)
    assert sorted(path.name for path in export.iterdir()) == [
        "export.json",
        "image.onnx",
        "text.onnx",
        "tokeniser.json",
    ]
    code = f"import sys, diptych; diptych.load({str(export)!r}).encode_texts(['a']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    exported.save(tmp_path / "saved")
    assert Model.load(tmp_path / "saved").identity == exported.identity
    model.save(tmp_path / "again")
    assert np.array_equal(Model.load(tmp_path / "again", "cpu").encode_texts(texts), expected)


def test_explanations_are_of_words(run, corpus):
    model = Model.load(run, "cpu")
    image = model.encode_images([corpus.pictures[0].load()])[0]
    explained = model.explain(image, SENTENCE + " ☃")
    assert [word.word for word in explained.words] == ["two", "reddish", "circles", "☃"]
    assert explained.unknown == ["☃"]
    whole, without = model.score(image[None], model.encode_texts([SENTENCE + " ☃", "two circles ☃"]))[0]
    assert explained.score == pytest.approx(whole, abs=1e-5)
    assert explained.words[1].importance == pytest.approx(whole - without, abs=1e-5)


def test_search_names_unknown_words(export, corpus, tmp_path):
    for number in range(3):
        corpus.pictures[number].load().save(tmp_path / f"{number}.png")
    index = tmp_path / "photos.diptych"
    sync(Model.load(export), str(tmp_path), index)
    searcher = open_index(index)
    some, none = searcher.search_texts(["a reddish ☃☃", "☃☃"], SearchRequest(k=1))
    assert some.unknown_words == ("☃☃",)
    assert some.message.startswith("The model does not know “☃☃”.")
    assert none.message == "The model knows none of these words; try other words."


def test_a_tokeniser_that_does_not_belong_to_the_weights_is_refused(copy, export, tmp_path, recipe, corpus):
    BytePairs.from_texts(["another text"], 90, 1).save(copy)
    message = r"weights\.safetensors: trained with another tokeniser than the tokeniser\.json of its run; restore that"
    with pytest.raises(RunError, match=message):
        Model.load(copy, "cpu").encode_texts(["a"])
    with pytest.raises(RunError, match="trained with another tokeniser than the tokeniser"):
        train(recipe, corpus, copy, resume=True, device="cpu")
    shutil.copytree(export, tmp_path / "export")
    BytePairs.from_texts(["another text"], 90, 1).save(tmp_path / "export")
    with pytest.raises(RunError, match=r"tokeniser\.json: damaged, or of another export; export the run again"):
        Model.load(tmp_path / "export").encode_texts(["a"])


def test_a_file_that_is_not_there_or_damaged_is_named(copy, export, tmp_path):
    (copy / "tokeniser.json").write_text("{")
    with pytest.raises(RunError, match=r"tokeniser\.json:1: not valid JSON"):
        Model.load(copy, "cpu").encode_texts(["a"])
    (copy / "tokeniser.json").unlink()
    with pytest.raises(RunError, match=r"not a run: it has no vocabulary\.json or tokeniser\.json"):
        Model.load(copy)
    shutil.copytree(export, tmp_path / "export")
    (tmp_path / "export" / "tokeniser.json").unlink()
    with pytest.raises(RunError, match=r"tokeniser\.json: cannot be read"):
        Model.load(tmp_path / "export").encode_texts(["a"])


def test_a_training_from_a_run_has_its_tokeniser(run, base, recipes, corpus, tmp_path):
    again = train(
        recipes(MODEL + BASE, f"stage.1.start={run}", "stage.1.epochs=1"),
        corpus,
        tmp_path / "again",
        device="cpu",
        workers=0,
    )
    assert load_tokeniser(again) == load_tokeniser(run)
    with pytest.raises(RecipeError, match=r"^text\.grow: .*pieces of words, to which no words can be added"):
        train(recipes(MODEL + BASE, f"stage.1.start={run}", "text.grow=true"), corpus, tmp_path / "grown")
    later = recipes(
        MODEL + BASE + BASE.replace("[text]\nthreshold = 1", ""), f"stage.1.start={run}", f"stage.2.start={base}"
    )
    with pytest.raises(RunError, match=f"^{base}: has another tokeniser than stage 1 begins with"):
        train(later, corpus, tmp_path / "later")
    assert not (tmp_path / "grown").exists()
    assert not (tmp_path / "later").exists()


def test_a_failed_preparation_leaves_no_tokeniser(recipe, corpus, tmp_path):
    class Failing(RecordingCallback):
        def on_start(self, start):
            raise ValueError

    with pytest.raises(CallbackError, match="Failing"):
        train(recipe, corpus, tmp_path / "run", device="cpu", callbacks=[Failing()])
    assert not (tmp_path / "run" / "tokeniser.json").exists()


def test_a_file_of_the_user_is_copied_into_the_run(run, recipes, corpus, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(load_tokeniser(run).document))
    own = train(
        recipes(MODEL + BASE, f"text.tokeniser={path}", "stage.1.epochs=1"), corpus, tmp_path / "own", device="cpu"
    )
    path.unlink()
    assert isinstance(load_tokeniser(own), CustomPieces)
    assert Model.load(own, "cpu").tokeniser.tokens(SENTENCE) == load_tokeniser(run).tokens(SENTENCE)
