"""The lists that a stage draws offline negatives from: those of a run that has mined, or mined by the stage before."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diptych.data.corpus import Corpus
from diptych.data.sampling.offline import OfflineSettings
from diptych.errors import DataError, RecipeError, RunError
from diptych.files import file_hash
from diptych.mining.lists import HardNegativeLists, lists_file, weights_digest
from diptych.mining.mine import mine
from diptych.model import Model
from diptych.models.storage import load_matcher
from diptych.progress import ProgressCallback
from diptych.training.recipe import Recipe, Stage


def training_corpus(stage: Stage, corpus: Corpus) -> Corpus:
    """What a stage trains on, and what its lists number."""
    return corpus.split(*stage.splits).matched()


def check_offline(recipe: Recipe, corpus: Corpus) -> None:
    """Find out before training begins what is wrong with the stages' objectives and lists."""
    for number, stage in enumerate(recipe.stage, 1):
        where, name = f"stage.{number}.offline", stage.objective.name
        if stage.offline is None:
            if stage.objective.needs_offline:
                raise RecipeError(
                    f"{where}: the objective {name!r} draws from mined lists; name a run that has mined, such as "
                    'offline = { lists = "runs/vsepp" }, or "previous"'
                )
            continue
        if not stage.objective.needs_offline:
            raise RecipeError(f"{where}: the objective {name!r} reads no offline negatives; use 'quintuplet'")
        train, before = training_corpus(stage, corpus), stage.offline.stage(number)
        if len(np.unique(train.text_groups)) < 2:
            raise DataError(f"{corpus.name}: all training images and texts are of one group; there are no negatives")
        if before is None:
            lists_of_run(stage.offline, train)
        elif not 1 <= before < number:
            raise RecipeError(
                f"{where}.lists = {stage.offline.lists!r}: no stage before this one; name a run that has mined"
            )


def lists_of_run(settings: OfflineSettings, train: Corpus) -> HardNegativeLists:
    """The lists of a run that has mined this corpus with the weights that it has now, as long as they are asked for."""
    run = Path(settings.lists)
    if not run.exists():
        raise RunError(f"{run}: no such run; train one, and mine with `diptych mine {run} DATA`")
    file = lists_file(run)
    if not file.is_file():
        raise RunError(f"{run}: has mined no lists yet; mine them with `diptych mine {run} DATA`")
    lists = HardNegativeLists.load(file)
    lists.check(train.digest(), weights_digest(run) if run.is_dir() else None, file)
    for found, asked, there in (
        (lists.texts, lists.header.top_texts, settings.top_texts),
        (lists.images, lists.header.top_images, settings.top_images),
    ):
        if found.shape[1] == asked < there:  # cut by who mined, and not for lack of negatives
            raise RunError(
                f"{file}: lists of {lists.header.top_texts} texts and {lists.header.top_images} images, and the stage "
                f"draws from {settings.top_texts} and {settings.top_images}; mine longer ones with `diptych mine {run} "
                f"DATA --top-texts {settings.top_texts} --top-images {settings.top_images}`"
            )
    return lists.truncate(settings.top_texts, settings.top_images)


def stage_lists(
    settings: OfflineSettings,
    train: Corpus,
    before: Path | None,
    model: Model,
    stores: Path,
    workers: int,
    progress: ProgressCallback,
) -> HardNegativeLists:
    """The lists of a stage: those of a run, or mined with the weights `before` of an earlier stage, and kept there."""
    if before is None:
        return lists_of_run(settings, train)
    matcher = load_matcher(before, model.vocabulary).to(model.device).eval()
    return mine(
        Model.from_matcher(matcher, model.vocabulary, model.device, stores=stores),
        train,
        lists_file(before.parent),
        weights=file_hash(before),
        top_texts=settings.top_texts,
        top_images=settings.top_images,
        workers=workers,
        progress=progress,
    )
