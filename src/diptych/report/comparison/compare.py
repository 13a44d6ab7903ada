"""Compare runs on the same images and texts: the metrics of each run, and how they differ from the first run's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.origin import open_origin
from diptych.errors import DataError, RunError
from diptych.evaluation.analyses.cross_retrieval import CrossRetrieval
from diptych.evaluation.metrics.paired_difference import PairedDifferences, paired_difference
from diptych.evaluation.protocols.retrieval import RetrievalResult
from diptych.evaluation.runs import cached_score, evaluate_encoded
from diptych.model import Model
from diptych.models.address import names_pair
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.matchers.pair import PairSettings
from diptych.report.sections.cross_retrieval import cross_retrieval_ranks
from diptych.report.training_curves import Epoch, epochs_since_scratch, read_epochs
from diptych.training.recipe import Recipe
from diptych.training.recipe_loader import load_recipe, trained_on_phrases

# Encodes a corpus with a run; the run's name is passed for progress displays.
Encode = Callable[[str, Model, Corpus], EncodedCorpus]


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """One of the compared runs: its name in the comparison, its training epochs and its result.

    `difference` is this run minus the baseline, on the same bootstrap draws; None for the baseline. `cross_retrieval`
    is None with folds, or without negatives.
    """

    path: Path
    name: str
    title: str
    epochs: list[Epoch]
    encoded: EncodedCorpus
    result: RetrievalResult
    difference: PairedDifferences | None = None
    cross_retrieval: CrossRetrieval | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs measured on the same images and texts, in the given order.

    `skipped` maps the id of each image that one of the runs could not read to the reason. `notes` are remarks on the
    data for the reader.
    """

    corpus: Corpus
    split: str
    runs: tuple[ComparedRun, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def baseline(self) -> ComparedRun:
        """The first run, with which all others are compared."""
        return self.runs[0]

    @property
    def title(self) -> str:
        """The data, the protocol and the number of images and texts."""
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
    """Measure runs on the images of a split that all of them can read; the first run is the baseline.

    `corpus` defaults to the one that the runs were trained on. `stores` is the folder with stored features, if any.
    """
    check_comparable(runs)
    corpus, notes = _open_origin(runs) if corpus is None else (corpus, [])
    encode = encode or (lambda _, model, part: model.encode_corpus(part))
    names = run_names(runs)
    models = [Model.load(run, device, stores=stores) for run in runs]
    recipes = [_recipe_of(run) for run in runs]
    epochs = [_read_epochs(run, recipe) for run, recipe in zip(runs, recipes, strict=True)]
    part = corpus.split(split).matched()
    encoded = [encode(name, model, part) for name, model in zip(names, models, strict=True)]
    skipped = {image: reason for each in encoded for image, reason in each.skipped.items()}
    shared = _without(part, skipped)
    for number, each in enumerate(encoded):
        if len(each.skipped) != len(skipped):
            encoded[number] = encode(names[number], models[number], shared)
    measured = [_measure(each, folds) for each in encoded]
    results = [result for result, _ in measured]
    differences = [None, *(paired_difference(results[0].folds, result.folds) for result in results[1:])]
    titles = [recipe.title for recipe in recipes]
    epochs = [epochs_since_scratch(each, recipe) for each, recipe in zip(epochs, recipes, strict=True)]
    cross_ranks = [ranks for _, ranks in measured]
    compared = map(ComparedRun, runs, names, titles, epochs, encoded, results, differences, cross_ranks)
    return Comparison(shared, split, tuple(compared), skipped, notes)


def _measure(encoded: EncodedCorpus, folds: int) -> tuple[RetrievalResult, CrossRetrieval | None]:
    score = cached_score([encoded]) if folds == 1 else None
    result = evaluate_encoded([encoded], folds=folds, average_precision=False, score=score)
    return result, None if score is None else cross_retrieval_ranks(score, encoded)


def check_comparable(runs: Sequence[Path]) -> None:
    """Raise a RunError for fewer than two runs, for duplicates, and for runs of different tasks."""
    if len(runs) < 2:
        given = f"{runs[0]}: only one run" if runs else "no runs"
        raise RunError(f"{given}; name at least two runs to compare, the baseline first")
    seen = set()
    for run in runs:
        if run.resolve() in seen:
            raise RunError(f"{run}: the run was named twice; name different runs")
        seen.add(run.resolve())
    on_phrases = [run for run in runs if trained_on_phrases(run)]
    others = [run for run in runs if run.is_dir() and run not in on_phrases]
    if on_phrases and others:
        raise RunError(
            f"{others[0]}: was not trained on phrases, but {on_phrases[0]} was; compare runs of the same task"
        )


def run_names(runs: Sequence[Path]) -> list[str]:
    """The names of the runs' folders, or their paths where two folders have the same name."""
    short = [run.name or run.resolve().name for run in runs]
    return [name if short.count(name) == 1 else str(run) for run, name in zip(runs, short, strict=True)]


def _open_origin(runs: Sequence[Path]) -> tuple[Corpus, list[str]]:
    """The corpus that the runs were trained on, and remarks on it; a pretrained pair was trained on none of ours."""
    trained = [run for run in runs if not names_pair(run)]
    if not trained:
        raise RunError(f"{runs[0]}: a pretrained pair does not say what to measure it on; name the data with --data")
    return open_origin(trained)


def _recipe_of(run: Path) -> Recipe:
    """The recipe of a run; for a pretrained pair, the recipe that would make a run of it."""
    if names_pair(run):
        return Recipe(title="Pretrained pair", model=PairSettings(model=str(run)))
    return load_recipe(str(run / "recipe.toml"))


def _read_epochs(run: Path, recipe: Recipe) -> list[Epoch]:
    """The epochs of a run; a recipe without stages has none."""
    epochs = read_epochs(run)
    if recipe.stage and not epochs:
        raise RunError(f"{run / 'metrics.jsonl'}: no finished epoch; train the run first, or resume it")
    return epochs


def _without(part: Corpus, skipped: Collection[str]) -> Corpus:
    """The corpus without the images that one of the runs could not read."""
    images = np.array([row for row, name in enumerate(part.image_ids) if name not in skipped], np.int64)
    readable = part.take(images, np.arange(len(part.texts))).matched()
    if not len(readable.texts):
        raise DataError(f"{part.name}: no image can be read by all runs; `diptych data check` lists the reasons")
    return readable
