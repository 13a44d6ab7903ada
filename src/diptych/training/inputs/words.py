"""The vocabulary that a training begins with, and the word vectors that its embedding starts from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.errors import DataError, RecipeError
from diptych.text.vocabulary import Vocabulary
from diptych.text.word_vectors import WordVectors, keep_words_with_vectors, read_word_vectors
from diptych.training.engine.callbacks import Callbacks
from diptych.training.recipe import Recipe


def initial_vocabulary(
    recipe: Recipe, corpus: Corpus, run: Path | None, callbacks: Callbacks
) -> tuple[Vocabulary, WordVectors | None]:
    """The vocabulary, and word vectors if a stage starts from scratch and the recipe names a file of them.

    The vocabulary is that of the resumed `run`, of the run that stage 1 starts from (with `text.grow`, and the words of
    the training texts that it lacks), or counted on the training texts and no others.
    """
    text = recipe.text
    source = run if run is not None else recipe.stage[0].start_folder
    vocabulary = _count_words(recipe, corpus) if source is None else Vocabulary.load(source / "vocabulary.json")
    if text.grow and run is None and source is not None:
        known, vocabulary = len(vocabulary.words), vocabulary.grown(_training_texts(recipe, corpus), text.threshold)
        new = len(vocabulary.words) - known
        callbacks.message(f"words: {known:,} of {recipe.stage[0].start}, and {new:,} more of the training texts")
    remaining = recipe.stage if run is None else recipe.stage[1:]  # the first stage of a resumed run has begun
    is_start = text.use != "filter" and any(stage.start == "scratch" for stage in remaining)
    is_filter = text.use != "start" and source is None
    if is_filter and text.vectors is None:
        raise RecipeError(
            f"text.use = {text.use!r}: a file of word vectors decides which words are kept; set text.vectors, or "
            "text.use=start to keep all words of the training texts"
        )
    if text.vectors is None or not (is_filter or is_start):
        return vocabulary, None
    vectors = read_word_vectors(Path(text.vectors), vocabulary)
    callbacks.message(f"word vectors: {int(vectors.found.sum()):,} of {len(vocabulary.words):,} words found")
    if is_filter:
        try:
            vocabulary, vectors = keep_words_with_vectors(vocabulary, vectors)
        except DataError as error:
            raise DataError(f"{text.vectors}: {error}") from None
    return vocabulary, vectors if is_start else None


def _count_words(recipe: Recipe, corpus: Corpus) -> Vocabulary:
    try:
        return Vocabulary.from_texts(_training_texts(recipe, corpus), recipe.text.threshold)
    except DataError as error:
        raise DataError(f"{corpus.name}: {error} (text.threshold = 1 keeps every word)") from None


def _training_texts(recipe: Recipe, corpus: Corpus) -> Sequence[str]:
    """All texts, and phrases if a stage uses them, that any stage trains on."""
    train = corpus.split(*sorted({split for stage in recipe.stage for split in stage.splits}))
    if all(stage.phrases is None for stage in recipe.stage):
        return train.texts
    return [*train.texts, *(phrase.text for some in train.phrases or () for phrase in some)]
