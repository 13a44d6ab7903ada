"""All ranks compute the features that a stage reads, before the first of them prepares the stage alone."""

from __future__ import annotations

from functools import partial

import torch

from diptych.data.shards.corpus import StreamCorpus
from diptych.model import Model
from diptych.training.context import TrainingContext, training_corpus
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.engine.trainable import set_trainable
from diptych.training.inputs.images import StageImages
from diptych.training.start import StartingPoint


def extract_together(
    training: TrainingContext, start: StartingPoint, device: torch.device, number: int, snapshot: Snapshot | None
) -> None:
    """Add the features of a stage's images to their store, if it reads them from one; the regions of phrases are not.

    What there is to report is reported when the stage is prepared.
    """
    stage, corpus, ranks = training.recipe.stage[number - 1], training.corpus, training.ranks
    if ranks.count == 1 or stage.phrases is not None or isinstance(corpus, StreamCorpus):
        return
    matcher = ranks.first_alone(partial(start.build_matcher, training.run, number, snapshot)).to(device)
    set_trainable(matcher, stage.trainable, stage.lora)
    model = Model.from_matcher(matcher, start.tokeniser, device)
    progress = training.progress("features")
    images = StageImages(model, stage, training.stores, training.workers, progress, lambda _: None, ranks)
    images.for_training(training_corpus(stage, corpus))
    images.for_encoding(corpus.split("val").matched())
