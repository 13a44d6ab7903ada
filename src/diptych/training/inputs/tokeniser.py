"""The tokeniser that a training begins with, and the word vectors that its embedding starts from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from diptych import registry
from diptych.data.corpus import Corpus
from diptych.data.shards.corpus import StreamCorpus
from diptych.errors import DataError, PluginError, RecipeError, RunError, did_you_mean
from diptych.text.tokenisers.custom import CustomPieces
from diptych.text.tokenisers.stored import StoredTokeniser, load_tokeniser
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.vocabulary import Vocabulary, require_words
from diptych.text.word_vectors import WordVectors, keep_words_with_vectors, read_word_vectors
from diptych.training.engine.callbacks import Callbacks
from diptych.training.recipe import Recipe
from diptych.training.start_run import start_tokeniser

PIECES = 8000  # if the recipe does not say how many


def initial_tokeniser(
    recipe: Recipe, corpus: Corpus, run: Path | None, callbacks: Callbacks
) -> tuple[Tokeniser, WordVectors | None]:
    """The tokeniser, and word vectors if a stage starts from scratch and the recipe names a file of them.

    The tokeniser is that of the resumed `run`, of the run that stage 1 starts from (with `text.grow`, and the words of
    the training texts that it lacks), of the model's pretrained text tower, or made from the training texts and no
    others.
    """
    source = str(run) if run is not None else recipe.stage[0].start_address
    own = None if recipe.model is None else recipe.model.tokeniser()
    if source is not None:
        tokeniser = load_tokeniser(run) if run is not None else start_tokeniser(source)
        if own is not None and own.digest != tokeniser.digest:
            raise RunError(f"{source}: its tokeniser is not that of the recipe's text tower; start from another run")
    else:
        tokeniser = own or _from_texts(recipe, corpus)
    if recipe.text.grow and run is None and source is not None:
        tokeniser = _grown(tokeniser, recipe, corpus, callbacks)
    return _with_vectors(tokeniser, recipe, run, callbacks)


def _from_texts(recipe: Recipe, corpus: Corpus) -> Tokeniser:
    """The tokeniser that the recipe names, made from the training texts unless it is a file."""
    text = recipe.text
    if text.tokeniser == "words":
        try:
            return Vocabulary.from_texts(_training_texts(recipe, corpus), text.threshold)
        except DataError as error:
            raise DataError(f"{corpus.name}: {error} (text.threshold = 1 keeps every word)") from None
    if text.tokeniser.endswith(".json"):
        return CustomPieces.from_file(Path(text.tokeniser))
    try:
        found = registry.find("text.tokenisers", text.tokeniser, StoredTokeniser)
    except PluginError as reason:
        raise RecipeError(f"text.tokeniser = {text.tokeniser!r}: {reason}") from reason
    if found is None:
        hint = did_you_mean(text.tokeniser, ["words", *registry.names("text.tokenisers", StoredTokeniser)])
        raise RecipeError(f"text.tokeniser = {text.tokeniser!r}: no such tokeniser; {hint} (or name a tokenizer.json)")
    try:
        made = found.from_texts(_training_texts(recipe, corpus), text.size or PIECES, text.threshold)
    except DataError as error:
        raise DataError(f"{corpus.name}: {error}") from None
    # The run names a plug-in as the recipe does; `module:Class` would have to be allowed even if it is installed.
    return found.model_validate({**made.model_dump(), "name": text.tokeniser})


def _grown(tokeniser: Tokeniser, recipe: Recipe, corpus: Corpus, callbacks: Callbacks) -> Vocabulary:
    """The words of a run, and those of the training texts that it lacks."""
    start = recipe.stage[0].start
    message = f"text.grow: {start} reads pieces of words, to which no words can be added; leave grow out"
    words = require_words(tokeniser, message, RecipeError)
    grown = words.grown(_training_texts(recipe, corpus), recipe.text.threshold)
    known, new = len(words.words), len(grown.words) - len(words.words)
    callbacks.message(f"words: {known:,} of {start}, and {new:,} more of the training texts")
    return grown


def _with_vectors(
    tokeniser: Tokeniser, recipe: Recipe, run: Path | None, callbacks: Callbacks
) -> tuple[Tokeniser, WordVectors | None]:
    """The tokeniser and the word vectors of the recipe, if any; they may filter the words of a new vocabulary."""
    text = recipe.text
    remaining = recipe.stage if run is None else recipe.stage[1:]  # the first stage of a resumed run has begun
    is_start = text.use != "filter" and any(stage.start == "scratch" for stage in remaining)
    is_filter = text.use != "start" and run is None and recipe.stage[0].start_address is None
    if is_filter and text.vectors is None:
        raise RecipeError(
            f"text.use = {text.use!r}: a file of word vectors decides which words are kept; set text.vectors, or "
            "text.use=start to keep all words of the training texts"
        )
    if text.vectors is None or not (is_filter or is_start):
        return tokeniser, None
    words = require_words(tokeniser, "text.vectors: the model reads pieces of words; leave vectors out", RecipeError)
    vectors = read_word_vectors(Path(text.vectors), words)
    callbacks.message(f"word vectors: {int(vectors.found.sum()):,} of {len(words.words):,} words found")
    if is_filter:
        try:
            words, vectors = keep_words_with_vectors(words, vectors)
        except DataError as error:
            raise DataError(f"{text.vectors}: {error}") from None
    return words, vectors if is_start else None


def _training_texts(recipe: Recipe, corpus: Corpus) -> Iterable[str]:
    """All texts, and phrases if a stage uses them, that any stage trains on."""
    splits = sorted({split for stage in recipe.stage for split in stage.splits})
    if isinstance(corpus, StreamCorpus):
        return corpus.stream(splits).texts()
    train = corpus.split(*splits)
    if all(stage.phrases is None for stage in recipe.stage):
        return train.texts
    return [*train.texts, *(phrase.text for some in train.phrases or () for phrase in some)]
