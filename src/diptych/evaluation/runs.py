"""Evaluation of what people have: runs, saved encodings, saved score matrices, and ensembles of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from diptych.data.corpus import Corpus, Integers
from diptych.data.open import open_corpus
from diptych.errors import ScoreError
from diptych.evaluation.metrics.average_precision import average_precision_applies
from diptych.evaluation.metrics.ranks import Score, embedding_score, matrix_score, mean_score, ranks
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT, TEXT_TO_IMAGE, metrics_from_ranks
from diptych.evaluation.protocols.retrieval import RetrievalResult, evaluate_score
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressCallback

_FLOATS = tuple(np.dtype(kind) for kind in (np.float16, np.float32, np.float64))

KEPT = 1 << 26  # scores of a matrix: 256 MB
KEPT_AT_ONCE = 64  # images

# The metrics a snapshot can be chosen by: those of which more is better.
SELECTABLE = (*(f"{side}_r{cutoff}" for side in (IMAGE_TO_TEXT, TEXT_TO_IMAGE) for cutoff in CUTOFFS), "rsum")


def evaluate(
    run: Model | Path | str,
    corpus: Corpus | Path | str,
    split: str = "test",
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
) -> RetrievalResult:
    """Measure a run on a split of a corpus (or of what lies at its address), in both directions.

    `average_precision` adds mAP; by default it is measured if a text has several correct images.
    """
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    model = run if isinstance(run, Model) else Model.load(run, device)
    encoded = model.encode_corpus(corpus.split(split), progress=progress)
    return evaluate_encoded([encoded], folds=folds, gallery=gallery, average_precision=average_precision)


def evaluate_encoded(
    encoded: Sequence[EncodedCorpus],
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
    score: Score | None = None,
) -> RetrievalResult:
    """Measure encodings; several are an ensemble, whose score is the mean of theirs. Who has it already gives it."""
    score = ensemble_score(encoded) if score is None else score
    groups = encoded[0].image_groups, encoded[0].text_groups
    if average_precision is None:
        average_precision = average_precision_applies(groups[0])
    return evaluate_score(score, *groups, folds=folds, gallery=gallery, average_precision=average_precision)


def ensemble_score(encoded: Sequence[EncodedCorpus]) -> Score:
    """The score of encodings, the mean of theirs where there are several."""
    for other in encoded[1:]:
        if other.digest != encoded[0].digest:
            alone = sorted(encoded[0].skipped.keys() ^ other.skipped.keys())
            why = f"only one could read {alone[0]}" if alone else "these differ in their corpus"
            raise ScoreError(f"an ensemble needs encodings of the same images and texts; {why}")
    return mean_score([encoded_score(each) for each in encoded]) if len(encoded) > 1 else encoded_score(encoded[0])


@torch.no_grad()
def cached_score(encoded: Sequence[EncodedCorpus], most: int = KEPT) -> Score:
    """The score of encodings for who goes over it more than once: costly scores are computed now and kept.

    Those of embedding models are quicker to compute again than to keep, and a matrix of more than `most` scores is not
    kept either.
    """
    score = ensemble_score(encoded)
    if score.images * score.texts > most or all(each.matcher().embedding_dim is not None for each in encoded):
        return score
    spans = [slice(start, start + KEPT_AT_ONCE) for start in range(0, score.images, KEPT_AT_ONCE)]
    against = score.against(slice(0, score.texts))
    return matrix_score(torch.cat([against(rows).cpu() for rows in spans]))


def validation_metrics(encoded: EncodedCorpus) -> dict[str, float]:
    """The metrics of one gallery by name, without intervals: what training looks at after each epoch."""
    return metrics_from_ranks(ranks(encoded_score(encoded), encoded.image_groups, encoded.text_groups)).to_json()


def encoded_score(encoded: EncodedCorpus) -> Score:
    """The scores of encodings, by the score of the model that made them."""
    return embedding_score(encoded.matcher().score, encoded.images, encoded.texts)


def evaluate_matrix(
    path: Path,
    image_groups: Integers,
    text_groups: Integers,
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
) -> RetrievalResult:
    """Measure a saved (images, texts) score matrix, higher is better, in .npy without pickle."""
    try:
        groups = image_groups, text_groups
        if average_precision is None:
            average_precision = average_precision_applies(image_groups)
        return evaluate_score(
            read_matrix(path), *groups, folds=folds, gallery=gallery, average_precision=average_precision
        )
    except ScoreError as error:
        raise ScoreError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def read_matrix(path: Path) -> Score:
    """A score matrix from a file, memory-mapped: it may be larger than memory."""
    try:
        matrix = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        raise ScoreError(f"{path}: no such file") from None
    except (ValueError, OSError, EOFError) as reason:
        raise ScoreError(f"{path}: not a whole .npy file of numbers ({reason})") from None
    if not isinstance(matrix, np.ndarray):
        matrix.close()
        raise ScoreError(f"{path}: an archive of arrays; save the one matrix with numpy.save")
    if matrix.ndim != 2 or matrix.dtype not in _FLOATS:
        raise ScoreError(f"{path}: {matrix.dtype} of shape {matrix.shape}; needs floats of shape (images, texts)")
    return matrix_score(torch.from_numpy(matrix))
