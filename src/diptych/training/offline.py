"""The lists that a stage draws offline negatives from: those of a run that has mined, or mined by the stage before."""

from __future__ import annotations

from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.offline import OfflineSettings
from diptych.errors import RecipeError, RunError
from diptych.features.identity import file_hash
from diptych.mining.lists import Lists, lists_file, weights_digest
from diptych.mining.mine import mine
from diptych.models.store import load_matcher
from diptych.models.trained import Trained, Watch
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
        before = stage.offline.stage(number)
        if before is None:
            lists_of_run(Path(stage.offline.lists), training_corpus(stage, corpus))
        elif not 1 <= before < number:
            raise RecipeError(
                f"{where}.lists = {stage.offline.lists!r}: no stage before this one; name a run that has mined"
            )


def lists_of_run(run: Path, train: Corpus) -> Lists:
    """The lists of a run that has mined this corpus with the weights that it has now."""
    if not run.exists():
        raise RunError(f"{run}: no such run; train one, and mine with `diptych mine {run} DATA`")
    file = lists_file(run)
    if not file.is_file():
        raise RunError(f"{run}: has mined no lists yet; mine them with `diptych mine {run} DATA`")
    lists = Lists.load(file)
    lists.check(train.digest(), weights_digest(run) if run.is_dir() else None, file)
    return lists


def stage_lists(
    settings: OfflineSettings,
    train: Corpus,
    before: Path | None,
    trained: Trained,
    stores: Path,
    workers: int,
    watch: Watch,
) -> Lists:
    """The lists of a stage: those of a run, or mined with the weights `before` of an earlier stage, and kept there."""
    if before is None:
        return lists_of_run(Path(settings.lists), train).head(settings.top_texts, settings.top_images)
    matcher = load_matcher(before, trained.vocabulary).to(trained.device).eval()
    return mine(
        Trained(matcher, trained.vocabulary, trained.device, stores),
        train,
        lists_file(before.parent),
        weights=file_hash(before),
        top_texts=settings.top_texts,
        top_images=settings.top_images,
        workers=workers,
        watch=watch,
    )
