"""Several runs on the same images and texts: what each reaches, and how far it differs from the first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from diptych.data.corpus import Corpus
from diptych.errors import DataError, RunError
from diptych.evaluation.analyses.cross_retrieval import CrossRetrieval
from diptych.evaluation.metrics.paired_difference import PairedDifferences, paired_difference
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.runs import cached_score, evaluate_encoded
from diptych.models.encodings import Encoded
from diptych.models.trained import Trained
from diptych.report.sections.cross_retrieval import cross_of
from diptych.report.training_curves import Epoch, last_round, read_epochs
from diptych.training.origin import open_origin
from diptych.training.recipe_loader import load_recipe, trained_on_phrases

# Encodes a corpus with a run, whose name is given to tell people what is being done.
Encode = Callable[[str, Trained, Corpus], Encoded]


@dataclass(frozen=True, eq=False)
class Compared:
    """One of the runs: what it is called here, how its training went, what it reached.

    `difference` is this run minus the baseline, on the same draws; the baseline itself has none. `cross` are the
    cross-retrieval ranks, which there are in one gallery with negatives.
    """

    path: Path
    name: str
    title: str
    epochs: list[Epoch]
    encoded: Encoded
    result: RetrievalResult
    difference: PairedDifferences | None = None
    cross: CrossRetrieval | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs measured on the same images and texts, in the order in which they were named.

    `skipped` says of the images that one of the runs could not read why, by their names; `notes` are lines about the
    data that a reader should know.
    """

    corpus: Corpus
    split: str
    runs: tuple[Compared, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def baseline(self) -> Compared:
        """The first run, which all others are compared with."""
        return self.runs[0]

    @property
    def title(self) -> str:
        """What was measured, in words."""
        result = self.baseline.result
        protocol = "" if len(result.folds) == 1 else f", {result.protocol}"
        return f"{self.corpus.name}, split {self.split}{protocol}: {result.images:,} images, {result.texts:,} texts"


def compare(
    runs: Sequence[Path],
    corpus: Corpus | None = None,
    split: str = "test",
    *,
    folds: int = 1,
    device: str = "auto",
    stores: Path | None = None,
    encode: Encode | None = None,
) -> Comparison:
    """Measure runs on the images of a split that all of them can read; the first is the baseline.

    Without a corpus, they are measured on the one that they were trained on. `stores` is a folder that may hold
    features of their backbones.
    """
    check_several(runs)
    corpus, notes = open_origin(runs) if corpus is None else (corpus, [])
    encode = encode or (lambda _, trained, part: trained.encode(part))
    names = run_names(runs)
    epochs = [_epochs(run) for run in runs]
    models = [Trained.open(run, device, stores=stores) for run in runs]
    part = corpus.split(split).matched()
    encoded = [encode(name, model, part) for name, model in zip(names, models, strict=True)]
    skipped = {image: reason for each in encoded for image, reason in each.skipped.items()}
    shared = _without(part, skipped)
    for number, each in enumerate(encoded):
        if len(each.skipped) != len(skipped):
            encoded[number] = encode(names[number], models[number], shared)
    measured = [_measured(each, folds) for each in encoded]
    results = [result for result, _ in measured]
    differences = [None, *(paired_difference(results[0].folds, result.folds) for result in results[1:])]
    recipes = [load_recipe(str(run / "recipe.toml")) for run in runs]
    titles = [recipe.title for recipe in recipes]
    epochs = [last_round(told, recipe) for told, recipe in zip(epochs, recipes, strict=True)]
    crosses = [cross for _, cross in measured]
    compared = map(Compared, runs, names, titles, epochs, encoded, results, differences, crosses)
    return Comparison(shared, split, tuple(compared), skipped, notes)


def _measured(encoded: Encoded, folds: int) -> tuple[RetrievalResult, CrossRetrieval | None]:
    score = cached_score([encoded]) if folds == 1 else None
    result = evaluate_encoded([encoded], folds=folds, score=score)
    return result, None if score is None else cross_of(score, encoded)


def check_several(runs: Sequence[Path]) -> None:
    """Refuse less than two runs, a run twice, and runs of different tasks."""
    if len(runs) < 2:
        named = f"{runs[0]}: only one run" if runs else "no run"
        raise RunError(f"{named}; name two runs or more to compare, the first is the baseline")
    seen = set()
    for run in runs:
        if run.resolve() in seen:
            raise RunError(f"{run}: the same run twice; name different runs")
        seen.add(run.resolve())
    on_phrases = [run for run in runs if trained_on_phrases(run)]
    others = [run for run in runs if run.is_dir() and run not in on_phrases]
    if on_phrases and others:
        raise RunError(f"{others[0]}: was not trained on phrases, as {on_phrases[0]} was; compare runs of one kind")


def run_names(runs: Sequence[Path]) -> list[str]:
    """What the runs are called: their folders, by the whole path where two have the same name."""
    short = [run.name or run.resolve().name for run in runs]
    return [name if short.count(name) == 1 else str(run) for run, name in zip(runs, short, strict=True)]


def _epochs(run: Path) -> list[Epoch]:
    epochs = read_epochs(run)
    if run.is_dir() and not epochs:
        raise RunError(f"{run / 'metrics.jsonl'}: no finished epoch to compare; train the run first, or go on with it")
    return epochs


def _without(part: Corpus, skipped: Collection[str]) -> Corpus:
    """What is left of a corpus where some images cannot be read by one of the runs."""
    images = np.array([row for row, name in enumerate(part.image_ids) if name not in skipped], np.int64)
    kept = part.take(images, np.arange(len(part.texts))).matched()
    if not len(kept.texts):
        raise DataError(f"{part.name}: no image can be read by all the runs; `diptych data check` says why")
    return kept
