"""The tokeniser that training begins with, and word vectors that filter it, or that its embedding starts from."""

import json
import shutil
import sys
from dataclasses import replace

import pytest
import torch

from diptych.data.corpus import Phrase
from diptych.errors import DataError, DiptychError, RecipeError, RunError
from diptych.model import Model
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.tokenisers.bpe import BytePairs
from diptych.text.tokenisers.custom import CustomPieces
from diptych.text.tokenisers.wordpiece import WordPieces
from diptych.text.vocabulary import Vocabulary
from diptych.training.engine.callbacks import Callbacks
from diptych.training.inputs.tokeniser import initial_tokeniser
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train
from support.callbacks import RecordingCallback
from support.corpora import with_features
from support.recipes import SMALL, TINY
from support.runs import last_weights
from support.tokenisers import bert_document


@pytest.fixture(scope="module")
def features(corpus):
    return with_features(corpus)


def recipe_with(*changes):
    sizes = ["model.joint=6", "model.text={name='gru', hidden=6, word=4}", "stage.1.batches.size=16"]
    return load_recipe("vsepp", [*sizes, "text.threshold=1", "stage.1.epochs=2", *changes])


@pytest.fixture(scope="module")
def vectors(corpus, tmp_path_factory):
    """A file that lacks every third of the training words, and the words that it has."""
    words = Vocabulary.from_texts(corpus.split("train").texts, 1).words
    has = [word for number, word in enumerate(words) if number % 3]
    rows = [f"{word} {number} 1 2 3" for number, word in enumerate(has)]
    path = tmp_path_factory.mktemp("words") / "vectors.txt"
    path.write_text("\n".join(["notinthetexts 1 2 3 4", *rows]) + "\n")
    return path, has


class FirstWeights(RecordingCallback):
    """Also keeps the weights that training began with."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_stage_start(self, stage):
        self.weights = last_weights(self.run)


@pytest.mark.parametrize("use", ["start", "filter", "both"])
def test_word_vectors_decide_which_words_there_are_and_how_they_start(use, vectors, corpus, features, tmp_path):
    path, has = vectors
    recipe = recipe_with(f"text.vectors={path}", f"text.use={use}", "stage.1.epochs=1")
    callback = FirstWeights(tmp_path / "run")
    run = train(recipe, features, tmp_path / "run", device="cpu", callbacks=[callback])
    words = Vocabulary.load(run / "vocabulary.json").words
    every = Vocabulary.from_texts(corpus.split("train").texts, 1).words
    assert list(words) == (list(every) if use == "start" else has)
    began = callback.weights["text.words.weight"]
    assert len(began) == 4 + len(words)
    rows = began[[4 + words.index(word) for word in has]]
    given = torch.tensor([[float(number), 1, 2, 3] for number in range(len(has))])
    assert torch.equal(rows, given) == (use != "filter")
    if use == "filter":
        assert rows.abs().max() <= 0.1
    assert f"word vectors: {len(has)} of {len(every)} words found" in callback.messages
    opened = Model.load(run, "cpu")
    assert opened.matcher.settings.words == 4 + len(words)


@pytest.mark.parametrize("use", ["filter", "both"])
def test_a_filtered_run_resumes_bit_for_bit_without_the_file(use, vectors, features, tmp_path):
    path = shutil.copy(vectors[0], tmp_path / "vectors.txt")
    recipe = recipe_with(f"text.vectors={path}", f"text.use={use}")
    whole = train(recipe, features, tmp_path / "whole", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, features, tmp_path / "cut", device="cpu", callbacks=[RecordingCallback((2,))])
    path.unlink()  # a run that has begun has its vocabulary
    train(recipe, features, tmp_path / "cut", resume=True, device="cpu")
    for name in ("best/weights.safetensors", "last/snapshot.safetensors"):
        assert (whole / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


@pytest.mark.parametrize("use", ["filter", "both"])
def test_a_filter_without_vectors_is_refused(use, features):
    message = rf"^text\.use = '{use}': a file of word vectors .*; set text\.vectors, or text\.use=start .*"
    with pytest.raises(RecipeError, match=message):
        initial_tokeniser(recipe_with(f"text.use={use}"), features, None, Callbacks())


def test_a_filter_that_leaves_no_word_is_refused(features, tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("xyzzy 1 2 3 4\n")
    with pytest.raises(DataError, match=rf"{path.name}.*none of the training words") as caught:
        initial_tokeniser(recipe_with(f"text.vectors={path}", "text.use=both"), features, None, Callbacks())
    assert "\n" not in str(caught.value)


def test_the_vocabulary_counts_train_only(corpus, recipe, whole, tmp_path):
    texts = [
        "zebra zebra zebra zebra zebra" if split != "train" else text
        for text, split in zip(corpus.texts, corpus.text_splits, strict=True)
    ]
    run = train(
        load_recipe("scenes", [*TINY, "stage.2.epochs=1"]), replace(corpus, texts=texts), tmp_path, device="cpu"
    )
    assert "zebra" not in (run / "vocabulary.json").read_text()


def test_word_vectors_are_a_start(corpus, tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("red " + " ".join(["0.5"] * 8) + "\n")
    callback = RecordingCallback()
    changes = [f"text.vectors={vectors}", "stage.1.epochs=1", "text.threshold=1", "stage.1.optimiser.rate=1e-9"]
    run = train(load_recipe("vsepp", [*SMALL, *changes]), with_features(corpus), tmp_path / "run", callbacks=[callback])
    trained = Model.load(run, "cpu")
    word = trained.matcher.text.words.weight[trained.vocabulary.ids["red"]]
    torch.testing.assert_close(word.detach(), torch.full((8,), 0.5), atol=1e-5, rtol=0)
    assert any(line.startswith("word vectors: 1 of") for line in callback.messages)


def test_the_vocabulary_is_that_of_the_run_to_resume_or_to_start_from(features, tmp_path):
    for name in ("resumed", "base"):
        Vocabulary.from_texts([f"words of {name}"], 1).save(tmp_path / name)
    counted, _ = initial_tokeniser(recipe_with(), features, None, Callbacks())
    assert counted.words == Vocabulary.from_texts(features.split("train").texts, 1).words
    from_run = recipe_with(f"stage.1.start={tmp_path / 'base'}")
    assert "base" in initial_tokeniser(from_run, features, None, Callbacks())[0].words
    for recipe in (recipe_with(), from_run):
        assert "resumed" in initial_tokeniser(recipe, features, tmp_path / "resumed", Callbacks())[0].words


def test_phrases_are_counted_only_if_a_stage_trains_on_them(corpus):
    texts, phrases = ["plain"] * len(corpus.texts), [[Phrase("zebra", "1", ())] for _ in corpus.texts]
    named = replace(corpus, texts=texts, phrases=phrases)
    for changes, words in (([], ("plain",)), (["stage.1.phrases={}"], ("plain", "zebra"))):
        vocabulary, _ = initial_tokeniser(recipe_with(*changes), named, None, Callbacks())
        assert tuple(sorted(vocabulary.words)) == words


def test_a_threshold_that_no_word_reaches_is_named(features):
    with pytest.raises(DataError, match=r"^scenes: .*\(text\.threshold = 1 keeps every word\)$"):
        initial_tokeniser(recipe_with("text.threshold=100000"), features, None, Callbacks())


def made_for(recipe, corpus, run=None):
    return initial_tokeniser(recipe, corpus, run, Callbacks())[0]


@pytest.mark.parametrize("kind", [BytePairs, WordPieces])
def test_pieces_are_learned_from_train_only(kind, features):
    texts = features.split("train").texts
    name = kind.model_fields["name"].default
    assert made_for(recipe_with(f"text.tokeniser={name}"), features) == kind.from_texts(texts, 8000, 1)
    small = made_for(recipe_with(f"text.tokeniser={name}", "text.size=60", "text.threshold=3"), features)
    assert small == kind.from_texts(texts, 60, 3)
    assert small != kind.from_texts(features.texts, 60, 3), "other splits would make no difference: test nothing"


def test_a_file_is_used_as_it_is(features, tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(DataError, match=r"tokenizer\.json: no such file"):
        made_for(recipe_with(f"text.tokeniser={path}"), features)
    path.write_text(json.dumps(bert_document()))
    assert made_for(recipe_with(f"text.tokeniser={path}"), features) == CustomPieces(document=bert_document())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bpf", "no such tokeniser; did you mean 'bpe'?"),
        ("treebank", "no such tokeniser; known: .*wordpiece, words .or name a tokenizer.json.$"),
        ("usem3", "'usem3' belongs to a text tower with pretrained weights, which brings it along"),
        ("own_code:Tokeniser", "the module 'own_code' is not allowed; .*--allow-code own_code"),
    ],
)
def test_a_tokeniser_that_texts_cannot_make_is_refused(name, message, features):
    with pytest.raises(RecipeError, match=rf"^text\.tokeniser.*{message}") as error:
        made_for(recipe_with(f"text.tokeniser={name}"), features)
    assert "\n" not in str(error.value)


def test_texts_without_words_are_named_with_the_corpus(features):
    silent = replace(features, texts=[""] * len(features.texts))
    with pytest.raises(DataError, match=r"^scenes: none of the texts has a word to make pieces of"):
        made_for(recipe_with("text.tokeniser=bpe"), silent)


def test_a_missing_library_is_one_line_with_the_command(features, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DiptychError, match=r"^tokenizers is not installed; run: pip install 'diptych\[tokenizers\]'$"):
        made_for(recipe_with("text.tokeniser=bpe"), features)


def test_a_pretrained_text_tower_brings_its_own(features, tmp_path, monkeypatch):
    own = BytePairs.from_texts(["own words"], 50, 1)
    monkeypatch.setattr(GRUSettings, "tokeniser", lambda self: own)
    assert made_for(recipe_with(), features) is own
    own.save(tmp_path / "base")
    start = recipe_with(f"stage.1.start={tmp_path / 'base'}")
    assert made_for(start, features) == own
    assert made_for(recipe_with(), features, tmp_path / "base") == own
    Vocabulary.from_texts(["other words"], 1).save(tmp_path / "words")
    other = recipe_with(f"stage.1.start={tmp_path / 'words'}")
    with pytest.raises(RunError, match=r"words: its tokeniser is not that of the recipe's text tower"):
        made_for(other, features)
