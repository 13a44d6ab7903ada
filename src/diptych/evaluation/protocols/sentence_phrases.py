"""Sentence scores combined with phrase scores: images and texts compared as a whole and by their parts.

    D(x, y) = (1 - alpha) d(x, y) + alpha d_rp(x, y)        (two-branch networks, Eq. 8)

d is the distance of an image-sentence model; d_rp is the mean, over the phrases of the sentence, of the distance to
the best region of the image by a region-phrase model. Scores are higher-is-better here; the weighted sum is the same.
A sentence without a phrase counts as its own single phrase, so that all sentences are measured on one scale.
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
from diptych.evaluation.metrics.scores import Index, Score, embedding_score
from diptych.model import Model
from diptych.progress import ProgressCallback
from diptych.text.noun_phrases import noun_phrases


@dataclass(frozen=True, eq=False)
class TextPhrases:
    """The distinct phrases of a corpus' texts, and which of them each text has, how often."""

    phrases: Sequence[str]  # distinct, sorted
    rows: Sequence[Integers]  # for each text, the rows of its distinct phrases in `phrases`, ascending
    counts: Sequence[Integers]  # for each text, how often it has each of them

    @classmethod
    def from_lists(cls, texts: Sequence[str], phrases: Sequence[Sequence[str]]) -> TextPhrases:
        """Build from the list of phrases of each text; a text without any is its own single phrase."""
        lists = [listed or (text,) for text, listed in zip(texts, phrases, strict=True)]
        distinct = sorted(set(chain.from_iterable(lists)))
        row = {phrase: number for number, phrase in enumerate(distinct)}
        pairs = [np.unique([row[phrase] for phrase in listed], return_counts=True) for listed in lists]
        return cls(distinct, [rows for rows, _ in pairs], [counts for _, counts in pairs])


def annotated_phrases(corpus: Corpus) -> TextPhrases:
    """The phrases of the corpus' annotation, with or without a box."""
    if corpus.phrases is None:
        raise DataError(
            f"{corpus.name}: its texts have no annotated phrases; let the chunker find them (--phrases-from chunker)"
        )
    return TextPhrases.from_lists(corpus.texts, [[phrase.text for phrase in phrases] for phrases in corpus.phrases])


def chunked_phrases(corpus: Corpus) -> TextPhrases:
    """The noun phrases that the chunker finds in the corpus' texts."""
    return TextPhrases.from_lists(corpus.texts, [noun_phrases(text) for text in corpus.texts])


def phrase_score(
    model: Model, corpus: Corpus, phrases: TextPhrases, workers: int = 2, progress: ProgressCallback | None = None
) -> Score:
    """The scores of images with texts by a region-phrase model: the mean over the phrases of each text.

    Raises ScoreError if the model cannot read one of the images.
    """
    total = len(corpus.image_ids) + len(phrases.phrases)
    images, _, skipped = model.torch_engine.encode_corpus_images(
        corpus, workers, progress and (lambda done, _: progress(done, total))
    )
    if skipped:
        image, reason = next(iter(skipped.items()))
        others = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        raise ScoreError(
            f"the phrase run cannot read {image}{others}, which the other run could; "
            f"leave it out of the corpus ({reason})"
        )
    start = len(corpus.image_ids)
    texts = model.torch_engine.text_tensor(
        phrases.phrases, progress and (lambda done, _: progress(start + done, total))
    )
    return mean_phrase_score(embedding_score(model.matcher.score, images, texts), phrases)


def mean_phrase_score(score: Score, phrases: TextPhrases) -> Score:
    """The scores of images with texts, from those of images with distinct phrases: the mean over a text's phrases.

    A tile scores each distinct phrase of its texts once and holds these scores in memory.
    """
    count = len(phrases.phrases)
    if score.texts != count:
        raise ScoreError(f"scores of {score.texts} phrases for {count}; make both from the same texts")

    def against(columns: Index) -> Callable[[Index], Tensor]:
        texts = range(len(phrases.rows))[columns] if isinstance(columns, slice) else columns.tolist()
        needed, mean = _phrase_means(phrases, texts)
        phrase_tile = score.against(torch.from_numpy(needed))
        return lambda rows: mean(phrase_tile(rows))

    return Score(score.images, len(phrases.rows), against)


def combined_score(sentences: Score, phrases: Score, share: float) -> Score:
    """The score of Eq. 8: `share` is alpha, the weight of the phrases; 0 uses the sentences alone."""
    if not 0 <= share <= 1:
        raise ScoreError(f"a share of {share} for the phrases; take one from 0 to 1, such as the paper's 0.2")
    if (sentences.images, sentences.texts) != (phrases.images, phrases.texts):
        some, others = (f"{score.images} x {score.texts}" for score in (sentences, phrases))
        raise ScoreError(f"sentences and phrases need scores of the same images and texts, not {some}, {others}")

    def against(columns: Index) -> Callable[[Index], Tensor]:
        sentence_tile, phrase_tile = sentences.against(columns), phrases.against(columns)
        return lambda rows: sentence_tile(rows) * (1 - share) + phrase_tile(rows) * share

    return replace(sentences, against=against)


def _phrase_means(phrases: TextPhrases, texts: Sequence[int]) -> tuple[Integers, Callable[[Tensor], Tensor]]:
    """The distinct phrases of some texts, and a function from their (images, phrases) scores to (images, texts) means.

    A text's phrases are added one after the other, in the order of their rows, with each product rounded separately:
    texts with the same phrases have equal means, bit for bit, in whatever order they name them.
    """
    rows = [phrases.rows[text] for text in texts]
    needed = np.unique(np.concatenate(rows))
    sizes = np.array([len(text_rows) for text_rows in rows])
    order = np.argsort(-sizes, kind="stable")  # the texts that still have a phrase to add are always the first
    original_order = torch.from_numpy(np.argsort(order))
    steps = []
    for step in range(sizes.max()):
        some = [texts[position] for position in order[: int(np.sum(sizes > step))]]
        columns = np.searchsorted(needed, [phrases.rows[text][step] for text in some])
        weights = [phrases.counts[text][step] / phrases.counts[text].sum() for text in some]
        steps.append((torch.from_numpy(columns), torch.tensor(weights)))

    def mean(scores: Tensor) -> Tensor:
        means = scores.new_zeros(len(scores), len(texts))
        for columns, weights in steps:
            weighted = scores.index_select(1, columns.to(scores.device)) * weights.to(scores)
            means[:, : len(columns)] += weighted
        return means.index_select(1, original_order.to(scores.device))

    return needed, mean
