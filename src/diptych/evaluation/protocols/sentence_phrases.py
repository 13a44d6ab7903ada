"""An image and a text compared as a whole and by their parts: sentence scores joined with scores of phrases.

    D(x, y) = (1 - alpha) d(x, y) + alpha d_rp(x, y)        (two-branch networks, Eq. 8)

d is the distance of an image-sentence model; d_rp is the mean, over the phrases of the sentence, of the distance to
the best region of the image by a region-phrase model. Scores are higher-is-better here, and the sum is the same.
A sentence without a phrase is its own only phrase, so that all sentences are measured on one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Integers
from diptych.errors import DataError, ScoreError
from diptych.evaluation.metrics.ranks import Index, Score, embedding_score
from diptych.model import Model
from diptych.progress import ProgressCallback
from diptych.text.noun_phrases import noun_phrases


@dataclass(frozen=True, eq=False)
class TextPhrases:
    """The distinct phrases of a corpus' texts, and which of them each text has, how often."""

    words: Sequence[str]
    of_texts: Sequence[Integers]  # for each text the rows of its phrases in `words`, each once, from low to high
    counts: Sequence[Integers]  # beside them, how often the text has each

    @classmethod
    def of(cls, texts: Sequence[str], phrases: Sequence[Sequence[str]]) -> TextPhrases:
        """The phrases of each text; a text without any is its own phrase."""
        phrases = [own or (text,) for text, own in zip(texts, phrases, strict=True)]
        words = sorted(set(chain.from_iterable(phrases)))
        row = {word: number for number, word in enumerate(words)}
        pairs = [np.unique([row[word] for word in own], return_counts=True) for own in phrases]
        return cls(words, [rows for rows, _ in pairs], [counts for _, counts in pairs])


def annotated_phrases(corpus: Corpus) -> TextPhrases:
    """The phrases that the corpus' annotation names, those without a box too."""
    if corpus.phrases is None:
        raise DataError(
            f"{corpus.name}: its texts have no annotated phrases; let the chunker find them (--phrases-from chunker)"
        )
    return TextPhrases.of(corpus.texts, [[phrase.text for phrase in own] for own in corpus.phrases])


def chunked_phrases(corpus: Corpus) -> TextPhrases:
    """The noun phrases that the chunker finds in the corpus' texts."""
    return TextPhrases.of(corpus.texts, [noun_phrases(text) for text in corpus.texts])


def phrase_score(
    model: Model, corpus: Corpus, phrases: TextPhrases, workers: int = 2, progress: ProgressCallback | None = None
) -> Score:
    """The scores of a corpus' images with its texts by a region-phrase model: the mean over a text's phrases.

    The model must be able to read every image; `progress` is told how many items of how many are encoded.
    """
    total = len(corpus.image_ids) + len(phrases.words)
    images, _, skipped = model.torch_engine.encode_corpus_images(
        corpus, workers, progress and (lambda done, _: progress(done, total))
    )
    if skipped:
        image, reason = next(iter(skipped.items()))
        others = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        raise ScoreError(
            f"the phrase run cannot read {image}{others}, which the run that it joins could; "
            f"leave it out of the corpus ({reason})"
        )
    start = len(corpus.image_ids)
    texts = model.torch_engine.text_tensor(phrases.words, progress and (lambda done, _: progress(start + done, total)))
    return mean_phrase_score(embedding_score(model.matcher.score, images, texts), phrases)


def mean_phrase_score(score: Score, phrases: TextPhrases) -> Score:
    """The scores of images with texts, from those of images with the distinct phrases: the mean over a text's phrases.

    A tile scores each distinct phrase of its texts once; memory is that of these scores.
    """
    if score.texts != len(phrases.words):
        raise ScoreError(f"scores of {score.texts} phrases for {len(phrases.words)}; make both from the same texts")

    def against(columns: Index) -> Callable[[Index], Tensor]:
        texts = range(len(phrases.of_texts))[columns] if isinstance(columns, slice) else columns.tolist()
        wanted, mean = _gathering(phrases, texts)
        part = score.against(torch.from_numpy(wanted))
        return lambda rows: mean(part(rows))

    return Score(score.images, len(phrases.of_texts), against)


def combined_score(sentences: Score, phrases: Score, share: float) -> Score:
    """The score of Eq. 8: `share` is alpha, the weight of the phrases; 0 is the sentences alone."""
    if not 0 <= share <= 1:
        raise ScoreError(f"a share of {share} for the phrases; take one from 0 to 1, such as the paper's 0.2")
    if (sentences.images, sentences.texts) != (phrases.images, phrases.texts):
        some, others = (f"{score.images} x {score.texts}" for score in (sentences, phrases))
        raise ScoreError(f"sentences and phrases need scores of the same images and texts; these are {some}, {others}")

    def against(columns: Index) -> Callable[[Index], Tensor]:
        whole, parts = sentences.against(columns), phrases.against(columns)
        return lambda rows: whole(rows) * (1 - share) + parts(rows) * share

    return replace(sentences, against=against)


def _gathering(phrases: TextPhrases, texts: Sequence[int]) -> tuple[Integers, Callable[[Tensor], Tensor]]:
    """The distinct phrases of some texts, and what makes of (images, phrases) scores the means, (images, texts).

    A text's phrases are added one after the other, in the order of their rows, each product rounded by itself: texts
    with the same phrases have equal means, bit for bit, in whatever order they name them.
    """
    own = [phrases.of_texts[text] for text in texts]
    wanted = np.unique(np.concatenate(own))
    sizes = np.array([len(rows) for rows in own])
    order = np.argsort(-sizes, kind="stable")  # the texts that still have a phrase are always the first
    back = torch.from_numpy(np.argsort(order))
    steps = []
    for turn in range(sizes.max()):
        some = [texts[place] for place in order[: int(np.sum(sizes > turn))]]
        places = np.searchsorted(wanted, [phrases.of_texts[text][turn] for text in some])
        weights = [phrases.counts[text][turn] / phrases.counts[text].sum() for text in some]
        steps.append((torch.from_numpy(places), torch.tensor(weights)))

    def mean(scores: Tensor) -> Tensor:
        means = scores.new_zeros(len(scores), len(texts))
        for places, weights in steps:
            weighted = scores.index_select(1, places.to(scores.device)) * weights.to(scores)
            means[:, : len(places)] += weighted
        return means.index_select(1, back.to(scores.device))

    return wanted, mean
