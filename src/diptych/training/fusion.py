"""Fuses runs into one model, whose score is a weighted sum of theirs; the weights are chosen on val.

The images and texts of val are encoded once, by all parts at a time. Each combination of shares is then measured as the
fused model would score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.data.origin import Origin, split_as_trained
from diptych.errors import DataError, RecipeError, RunError, did_you_mean
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.recall import SELECTION_METRICS, metrics_from_ranks
from diptych.evaluation.metrics.scores import embedding_score
from diptych.evaluation.runs import FEATURES
from diptych.features.backbone import weights_digest
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.export.exported import check_is_new
from diptych.models.matcher import Matcher
from diptych.models.matchers.fused import Fused, have_one_encoder, misfit, score_weights
from diptych.progress import ProgressCallback
from diptych.training.make import MadeRun
from diptych.training.recipe import Recipe


@dataclass(frozen=True)
class FusionTrial:
    """One combination of shares: the weights of the parts' scores that follow from it, and its metrics on val."""

    shares: tuple[float, ...]
    weights: tuple[float, ...]
    metrics: dict[str, float]

    @property
    def is_mixture(self) -> bool:
        """Whether every part has a share."""
        return all(share > 0 for share in self.shares)

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {"shares": self.shares, "weights": self.weights, "val": self.metrics}


@dataclass(frozen=True)
class Fusion:
    """What `fuse` has measured: the spread of each run's scores, all trials, and the best by the metric `select`.

    If the best trial leaves a run out, nothing was written: that run adds nothing on val.
    """

    runs: tuple[str, ...]
    spreads: tuple[float, ...]
    trials: tuple[FusionTrial, ...]
    select: str

    @property
    def best(self) -> FusionTrial:
        """The best trial; of several, the first."""
        return max(self.trials, key=lambda trial: trial.metrics[self.select])

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        trials = [trial.to_json() for trial in self.trials]
        return {"runs": self.runs, "spreads": self.spreads, "select": self.select, "trials": trials}


def fuse(  # noqa: PLR0913 (options, by keyword only)
    runs: Sequence[Path | str],
    corpus: Corpus | Path | str,
    into: Path | str,
    *,
    shares: Sequence[float] | None = None,
    step: float = 0.05,
    standardise: bool = True,
    select: str = "rsum",
    device: str = "auto",
    features: Path | str | None = FEATURES,
    workers: int = 2,
    progress: ProgressCallback | None = None,
) -> Fusion:
    """Fuse runs into one, with the shares that are best on val of a corpus (or of the data at an address).

    The runs are embedding models with the same image input, backbone and tokeniser. All shares that are multiples of
    `step` and sum to one are measured, or only `shares`, if given. With `standardise`, each run's scores are divided by
    their standard deviation on val, so that equal shares are equal influence. `select` is the metric that decides.
    """
    check_is_new(Path(into))
    _check_options(runs, shares, step, select)
    models = [Model.load(run, device) for run in runs]
    _check_parts(runs, models)
    if not isinstance(corpus, Corpus):
        corpus, _ = split_as_trained(open_corpus(corpus), runs)
    parts = [model.matcher for model in models]
    one_encoder = have_one_encoder(parts)
    matcher = Fused(parts, [1 / len(parts)] * len(parts), one_encoder=one_encoder).to(models[0].device).eval()
    stores = None if features is None else Path(features)
    model = Model.from_matcher(matcher, models[0].tokeniser, models[0].device, stores=stores)
    encoded = _EncodedParts.split(model.encode_corpus(corpus.split("val"), workers, progress), parts)
    spreads = encoded.spreads() if standardise else (1.0,) * len(parts)
    grid = share_grid(len(parts), step) if shares is None else [tuple(shares)]
    trials = tuple(encoded.measure(one, score_weights(one, spreads)) for one in grid)
    fusion = Fusion(tuple(map(str, runs)), spreads, trials, select)
    if fusion.best.is_mixture:
        fused = Fused(parts, fusion.best.shares, spreads if standardise else (), one_encoder=one_encoder)
        names = " and ".join(Path(run).name for run in runs)
        recipe = Recipe(title=f"{names}, fused", model=fused.settings)
        origin = Origin.of(corpus, corpus.digest())
        about = {"fusion": fusion.to_json()}
        MadeRun(fused, model.tokeniser, recipe, origin, fusion.best.metrics, about).write(Path(into))
    return fusion


def share_grid(parts: int, step: float) -> list[tuple[float, ...]]:
    """All shares of so many parts that are multiples of a step and sum to one.

    >>> share_grid(2, 0.5)
    [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)]
    """
    steps = round(1 / step)
    return [tuple(count / steps for count in counts) for counts in _compositions(parts, steps)]


def _compositions(parts: int, total: int) -> Iterator[tuple[int, ...]]:
    """All tuples of so many whole numbers that sum to a total, those with a large first number first."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in _compositions(parts - 1, total - first):
            yield (first, *rest)


@dataclass(frozen=True, eq=False)
class _EncodedParts:
    """The embeddings of val by each part, which share rows."""

    encoded: EncodedCorpus
    images: tuple[Tensor, ...]
    texts: tuple[Tensor, ...]

    @classmethod
    def split(cls, encoded: EncodedCorpus, parts: Sequence[Matcher]) -> _EncodedParts:
        """The embeddings of a fused model whose parts have equal weights, by part."""
        sizes = [part.embedding_dim or 0 for part in parts]
        scale = math.sqrt(len(parts))
        images, texts = (
            tuple(scale * some for some in torch.split(side, sizes, dim=1)) for side in (encoded.images, encoded.texts)
        )
        return cls(encoded, images, texts)

    def spreads(self) -> tuple[float, ...]:
        """The standard deviation of each part's scores over all images and texts."""
        return tuple(score_deviation(*sides) for sides in zip(self.images, self.texts, strict=True))

    def measure(self, shares: tuple[float, ...], weights: tuple[float, ...]) -> FusionTrial:
        """The metrics of the weighted sum of the parts' scores."""
        images, texts = (
            torch.cat([math.sqrt(weight) * some for weight, some in zip(weights, side, strict=True)], 1)
            for side in (self.images, self.texts)
        )
        score = embedding_score(lambda rows, columns: rows @ columns.t(), images, texts)
        found = ranks(score, self.encoded.image_groups, self.encoded.text_groups)
        return FusionTrial(shares, weights, metrics_from_ranks(found).to_json())


def score_deviation(images: Tensor, texts: Tensor) -> float:
    """The standard deviation of the inner products of all images with all texts, without computing them.

    Their sum is (sum f) . (sum g), and that of their squares is the inner product of F'F and G'G.
    """
    images, texts = images.double(), texts.double()
    pairs = len(images) * len(texts)
    mean = float(images.sum(0) @ texts.sum(0)) / pairs
    square = float(((images.t() @ images) * (texts.t() @ texts)).sum()) / pairs
    deviation = math.sqrt(max(square - mean**2, 0.0))
    if not deviation > 0:
        raise DataError("a run gives all images and texts of val the same score; leave it out")
    return deviation


def _check_options(runs: Sequence[Path | str], shares: Sequence[float] | None, step: float, select: str) -> None:
    if len(runs) < 2:
        raise RunError(f"{runs[0] if runs else 'no runs'}: name at least two runs to fuse")
    folders = [Path(run).resolve() for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        if folders.count(folder) > 1:
            raise RunError(f"{run}: the run was named twice; name different runs")
    if select not in SELECTION_METRICS:
        raise RecipeError(f"select = {select!r}: not a metric of retrieval; {did_you_mean(select, SELECTION_METRICS)}")
    if not 0 < step <= 0.5 or not math.isclose(1 / step, round(1 / step), rel_tol=1e-6):
        raise RecipeError(f"step = {step:g}: not a fraction of one, such as 0.1 or 0.05")
    if shares is not None and (len(shares) != len(runs) or min(shares) <= 0 or not math.isclose(sum(shares), 1)):
        given = ", ".join(f"{share:g}" for share in shares)
        raise RecipeError(f"shares = {given}: give each of the {len(runs)} runs a positive share; they must sum to 1")


def _check_parts(runs: Sequence[Path | str], models: Sequence[Model]) -> None:
    """Refuse runs that do not fit the first."""
    first = models[0]
    digest = _backbone_digest(first)
    for run, model in zip(runs[1:], models[1:], strict=True):
        reason = misfit(first.matcher, model.matcher)
        if reason is None and model.tokeniser.digest != first.tokeniser.digest:
            reason = "their tokenisers differ; fuse runs whose text towers read the same ids"
        if reason is None and _backbone_digest(model) != digest:
            reason = "their backbones have different weights; fuse runs that leave the backbone as it is"
        if reason is not None:
            raise RunError(f"{runs[0]} and {run} cannot be fused: {reason}")


def _backbone_digest(model: Model) -> str | None:
    backbone = model.matcher.pretrained
    return None if backbone is None else weights_digest(backbone)
