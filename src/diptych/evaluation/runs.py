"""Evaluation of runs, saved encodings, saved score matrices, and ensembles of them.

Python and the command line evaluate through these functions, with the same defaults.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from diptych.data.corpus import Corpus, Integers
from diptych.data.open import open_corpus
from diptych.data.origin import split_as_trained
from diptych.errors import RunError, ScoreError
from diptych.evaluation.metrics.ranks import ranks as ranks_of
from diptych.evaluation.metrics.recall import metrics_from_ranks
from diptych.evaluation.metrics.scores import Score, embedding_score, matrix_score, mean_score
from diptych.evaluation.metrics.tiles import BLOCK, BLOCK_OF_SETS
from diptych.evaluation.protocols.retrieval import RetrievalResult, evaluate_score
from diptych.evaluation.resumable import ResumablePasses
from diptych.features.backbone import weights_digest
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.spread_rows import SpreadRows, own_rows
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks

# The folder of feature stores, as in training: relative to the working directory.
FEATURES = Path("features")

MAX_CACHED_SCORES = 1 << 26  # 256 MB

Encoded: TypeAlias = "EncodedCorpus | EncodedCorpus[SpreadRows]"

_IMAGES_AT_ONCE = 64  # rows of a cached matrix that are computed together
_FLOATS = tuple(np.dtype(kind) for kind in (np.float16, np.float32, np.float64))


def evaluate(  # noqa: PLR0913 (options, by keyword only)
    run: Model | Path | str,
    corpus: Corpus | Path | str,
    split: str = "test",
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
    device: str = "auto",
    features: Path | str | None = FEATURES,
    workers: int = 2,
    progress: ProgressCallback | None = None,
    ranks: Ranks = ALONE,
    resume: Path | str | None = None,
) -> RetrievalResult:
    """Measure retrieval in both directions, of a run on one split of a corpus or of the data at an address.

    `features` is a folder of feature stores: features of the run's backbone are read from it, and those that it lacks
    are added to it. With None, all features are computed. By default, mAP is measured if a text has several correct
    images. The `ranks` that a script has joined share the work, and all of them get the same result.

    An interrupted call leaves what it has compared in a file whose name is `resume` and ".partial"; the same call
    continues from it, and removes it at the end.
    """
    corpus = open_for_run(corpus, run)
    model = ranks.first_alone(lambda: open_run(run, device, features))
    encoded = encode_together(model, corpus.split(split), workers, progress, ranks)
    return evaluate_encoded(
        [encoded],
        folds=folds,
        gallery=gallery,
        average_precision=average_precision,
        resume=None if resume is None else Path(resume),
    )


def open_for_run(corpus: Corpus | Path | str, run: Model | Path | str) -> Corpus:
    """The data at an address with the splits that a run was trained with; a corpus keeps the splits that it has."""
    if isinstance(corpus, Corpus):
        return corpus
    folders: list[Path | str] = []
    with suppress(RunError):  # a model in memory has no folder
        folders = [run.address if isinstance(run, Model) else run]
    return split_as_trained(open_corpus(corpus), folders)[0]


def open_run(run: Model | Path | str, device: str = "auto", features: Path | str | None = FEATURES) -> Model:
    """The best snapshot of a run, ready to be evaluated; an opened run is returned as it is.

    If the folder `features` has a store of the run's backbone, image features are read from it, and those that it
    lacks are added to it. None computes all features.
    """
    if isinstance(run, Model):
        return run
    return Model.load(run, device, stores=None if features is None else Path(features))


def encode_together(
    model: Model, corpus: Corpus, workers: int, progress: ProgressCallback | None, ranks: Ranks
) -> Encoded:
    """The encodings of a corpus by a model, which stay spread over the ranks if there are several."""
    if ranks.count == 1:
        return model.encode_corpus(corpus, workers, progress)
    return encode_spread(model, corpus, workers, progress, ranks)


def encode_spread(
    model: Model, corpus: Corpus, workers: int, progress: ProgressCallback | None, ranks: Ranks
) -> EncodedCorpus[SpreadRows]:
    """The encodings of a corpus, of which each rank has a share; all must have the same model and data."""
    ranks.must_agree({"the data": corpus.digest(), "the model": weights_digest(model.matcher)})
    return model.torch_engine.encode_spread(corpus, workers, progress, ranks=ranks)


def evaluate_encoded(
    encoded: Sequence[Encoded],
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
    score: Score | None = None,
    resume: Path | None = None,
    progress: ProgressCallback | None = None,
) -> RetrievalResult:
    """Measure encodings; several are an ensemble. `score` replaces their own score, for example by a cached one.

    With `resume`, an interrupted call is continued, as by `evaluate`. `progress` receives the number of tiles of scores
    done and the total.
    """
    own_score = ensemble_score(encoded)
    passes = None
    if resume is not None:
        ranks = own_score.ranks
        made_with = {
            "folds": folds,
            "gallery": gallery,
            "precision": average_precision,
            "rows": _digest(encoded, ranks),
        }
        passes = ResumablePasses(resume, made_with, ranks)
    result = evaluate_score(
        own_score if score is None else score,
        encoded[0].image_groups,
        encoded[0].text_groups,
        folds=folds,
        gallery=gallery,
        average_precision=average_precision,
        block=BLOCK if all(each.matcher().embedding_dim is not None for each in encoded) else BLOCK_OF_SETS,
        passes=passes,
        progress=progress,
    )
    if passes is not None:
        passes.remove()
    return result


def _digest(encoded: Sequence[Encoded], ranks: Ranks) -> list[str]:
    """Identifies the encodings that each rank has."""
    digest = hashlib.sha256()
    for rows in (side for each in encoded for side in (each.images, each.texts)):
        digest.update(own_rows(rows).cpu().contiguous().numpy().tobytes())
    return ranks.gather_values(digest.hexdigest())


def ensemble_score(encoded: Sequence[Encoded]) -> Score:
    """The score of encodings; of several, the mean of their scores."""
    for other in encoded[1:]:
        if other.digest != encoded[0].digest:
            read_once = sorted(encoded[0].skipped.keys() ^ other.skipped.keys())
            reason = f"only one could read {read_once[0]}" if read_once else "these differ in their corpus"
            raise ScoreError(f"an ensemble needs encodings of the same images and texts; {reason}")
    return mean_score([encoded_score(each) for each in encoded]) if len(encoded) > 1 else encoded_score(encoded[0])


def encoded_score(encoded: Encoded) -> Score:
    """The score of encodings, by the model that made them."""
    return embedding_score(encoded.matcher().score, encoded.images, encoded.texts)


@torch.no_grad()
def cached_score(encoded: Sequence[EncodedCorpus], most: int = MAX_CACHED_SCORES) -> Score:
    """The score of encodings, for several passes over it: costly scores are computed once, now.

    Scores of embedding models are not cached, since they are faster to compute again, nor is a matrix of more than
    `most` scores.
    """
    score = ensemble_score(encoded)
    if score.images * score.texts > most or all(each.matcher().embedding_dim is not None for each in encoded):
        return score
    spans = [slice(start, start + _IMAGES_AT_ONCE) for start in range(0, score.images, _IMAGES_AT_ONCE)]
    against = score.against(slice(0, score.texts))
    return matrix_score(torch.cat([against(rows).cpu() for rows in spans]))


def validation_metrics(encoded: EncodedCorpus) -> dict[str, float]:
    """The metrics of one gallery by name, without intervals: what training measures after each epoch."""
    return metrics_from_ranks(ranks_of(encoded_score(encoded), encoded.image_groups, encoded.text_groups)).to_json()


def evaluate_matrix(
    path: Path,
    image_groups: Integers,
    text_groups: Integers,
    *,
    folds: int = 1,
    gallery: int | None = None,
    average_precision: bool | None = None,
) -> RetrievalResult:
    """Measure a saved (images, texts) score matrix, higher is better, in .npy format without pickle."""
    groups = image_groups, text_groups
    try:
        score = read_matrix(path)
        return evaluate_score(score, *groups, folds=folds, gallery=gallery, average_precision=average_precision)
    except ScoreError as error:
        raise ScoreError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def read_matrix(path: Path) -> Score:
    """The score matrix in a file, memory-mapped, so that it may be larger than memory."""
    try:
        matrix = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        raise ScoreError(f"{path}: no such file") from None
    except (ValueError, OSError, EOFError) as reason:
        raise ScoreError(f"{path}: not a complete .npy file of numbers ({reason})") from None
    if not isinstance(matrix, np.ndarray):
        matrix.close()
        raise ScoreError(f"{path}: an archive of arrays; save the matrix alone with numpy.save")
    if matrix.ndim != 2 or matrix.dtype not in _FLOATS:
        raise ScoreError(f"{path}: {matrix.dtype} of shape {matrix.shape}; expected floats of shape (images, texts)")
    return matrix_score(torch.from_numpy(matrix))
