"""Negatives from mined lists: those of a run, or mined before the stage begins, by an earlier stage or by its start."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
from typing_extensions import Self

from diptych.data.corpus import Corpus
from diptych.data.sampling.batch import PairBatch
from diptych.data.sampling.offline import OfflineNegatives, OfflineSampler, OfflineSettings
from diptych.errors import RunError
from diptych.files import file_hash
from diptych.mining.lists import LISTS_FILE, HardNegativeLists, lists_file, weights_digest
from diptych.mining.mine import mine
from diptych.model import Model
from diptych.models.address import run_folder
from diptych.models.storage import load_matcher
from diptych.objectives.extras import OfflineScores
from diptych.training.context import StageContext, stage_file, start_file
from diptych.training.needs.need import EncodedPairs, Need


class Offline(Need):
    """Draws negatives of each pair from mined lists, and scores them."""

    name: ClassVar[str] = "offline"

    def __init__(self, sampler: OfflineSampler) -> None:
        self._sampler = sampler

    @classmethod
    def prepare(cls, context: StageContext) -> Self:
        """Find the lists, or mine them with the weights of an earlier stage or of what the stage starts from."""
        settings = context.stage.offline
        assert settings is not None, "checked by compatibility"
        lists = _stage_lists(settings, context)
        if lists.shortage:
            context.training.callbacks.message(lists.shortage)
        _check_same_lists(context, settings.lists, lists.header.weights)
        return cls(OfflineSampler(context.train, lists.texts, lists.images, settings))

    @property
    def epoch_extension(self) -> OfflineSampler:
        """The sampler that draws from the lists."""
        return self._sampler

    def supply(self, batch: PairBatch, pairs: EncodedPairs) -> OfflineScores:
        """The scores of each pair's negatives; each was encoded once, however often it was drawn."""
        drawn, device = batch.extras[OfflineNegatives], pairs.image_of.device
        images, texts = (
            torch.from_numpy(drawn.images).to(device),
            torch.from_numpy(drawn.texts).to(device),
        )  # (pairs, 2)
        rows = (
            torch.cat([pairs.image_of, images[:, 0], images[:, 0], images[:, 1]]),
            torch.cat([texts[:, 0], pairs.text_of, texts[:, 0], texts[:, 1]]),
        )
        scores = pairs.matcher.score_pairs(pairs.encoded.images[rows[0]], pairs.encoded.texts[rows[1]])
        text, image, both, derived = scores.chunk(4)
        is_drawn = torch.from_numpy(drawn.is_drawn).to(device)
        return OfflineScores(text, image, both, derived, is_drawn, torch.from_numpy(drawn.is_negative).to(device))


def _stage_lists(settings: OfflineSettings, context: StageContext) -> HardNegativeLists:
    """The lists of a run, or mined with the weights of an earlier stage, or by the model that the stage starts from."""
    if settings.by_start and context.stage.start != "previous":
        return _mined_by_start(settings, context)
    mining_stage = context.number - 1 if settings.by_start else settings.mining_stage(context.number)
    if mining_stage is None:
        return lists_of_run(settings, context.train)
    model, weights = context.model, stage_file(context.training.run, mining_stage)
    matcher = load_matcher(weights, model.tokeniser).to(model.device).eval()
    miner = Model.from_matcher(matcher, model.tokeniser, model.device, stores=context.training.stores)
    return _mine(miner, file_hash(weights), weights.parent, settings, context)


def _mined_by_start(settings: OfflineSettings, context: StageContext) -> HardNegativeLists:
    """The lists that the stage's start has mined; a resumed stage reads them, since its start may be gone by then."""
    folder = start_file(context.training.run).parent
    if context.resumed is not None:
        file = folder / LISTS_FILE
        lists = HardNegativeLists.load(file)
        lists.check(context.train.digest(), None, file)
        return lists
    miner = Model.load(str(context.stage.start), str(context.model.device), stores=context.training.stores)
    return _mine(miner, miner.identity, folder, settings, context)


def _mine(
    miner: Model, weights: str, folder: Path, settings: OfflineSettings, context: StageContext
) -> HardNegativeLists:
    """Mine the training data into a folder; `weights` identifies the model that mines."""
    training = context.training
    return mine(
        miner,
        context.train,
        folder / LISTS_FILE,
        weights=weights,
        top_texts=settings.top_texts,
        top_images=settings.top_images,
        workers=training.workers,
        progress=training.progress("mining"),
    )


def _check_same_lists(context: StageContext, source: str, weights: str) -> None:
    """Record in the journal which weights mined the lists; a resumed run must draw from the same lists."""
    lines = [line for line in context.journal.lines() if line["event"] == "lists" and line["stage"] == context.number]
    if not lines:
        context.journal.add({"stage": context.number, "epoch": 1, "step": 0, "event": "lists", "weights": weights})
    elif lines[0]["weights"] != weights:
        raise RunError(
            f"{context.training.run}: stage {context.number} began with lists of {source} that other weights had "
            "mined; restore those, or train --into another folder"
        )


def lists_of_run(settings: OfflineSettings, train: Corpus) -> HardNegativeLists:
    """The lists of a run, which must have mined this corpus with its present weights, at the length of the settings."""
    run = run_folder(settings.lists)
    if not run.exists():
        raise RunError(f"{run}: no such run; train one, and mine with `diptych mine {run} DATA`")
    file = lists_file(run)
    if not file.is_file():
        raise RunError(f"{run}: has mined no lists yet; mine them with `diptych mine {run} DATA`")
    lists = HardNegativeLists.load(file)
    lists.check(train.digest(), weights_digest(run) if run.is_dir() else None, file)
    for mined, mined_length, wanted_length in (
        (lists.texts, lists.header.top_texts, settings.top_texts),
        (lists.images, lists.header.top_images, settings.top_images),
    ):
        if mined.shape[1] == mined_length < wanted_length:  # shortened by --top, not for lack of negatives
            raise RunError(
                f"{file}: lists of {lists.header.top_texts} texts and {lists.header.top_images} images, and the stage "
                f"draws from {settings.top_texts} and {settings.top_images}; mine longer ones with `diptych mine {run} "
                f"DATA --top-texts {settings.top_texts} --top-images {settings.top_images}`"
            )
    return lists.truncate(settings.top_texts, settings.top_images)
