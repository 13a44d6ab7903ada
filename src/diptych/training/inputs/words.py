"""The vocabulary that a training begins with, and the word vectors that its embedding starts from."""

from __future__ import annotations

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

    The vocabulary is that of the resumed `run`, of the run that stage 1 starts from, or counted on the training texts
    and no others.
    """
    start, text = recipe.stage[0].start, recipe.text
    source = run if run is not None else None if start == "scratch" else Path(start)
    vocabulary = _count_words(recipe, corpus) if source is None else Vocabulary.load(source / "vocabulary.json")
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
    """The words of all texts, and phrases if a stage uses them, that any stage trains on."""
    splits = sorted({split for stage in recipe.stage for split in stage.splits})
    try:
        train = corpus.split(*splits)
        phrases = [phrase.text for some in train.phrases or () for phrase in some]
        named = any(stage.phrases is not None for stage in recipe.stage)
        return Vocabulary.from_texts([*train.texts, *phrases] if named else train.texts, recipe.text.threshold)
    except DataError as error:
        raise DataError(f"{corpus.name}: {error} (text.threshold = 1 keeps every word)") from None
