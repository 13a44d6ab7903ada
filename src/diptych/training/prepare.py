"""From a stage's recipe to a stage that is ready to train: its inputs, needs, step and data, in this order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from diptych.data.corpus import Corpus
from diptych.data.phrases import find_mentions
from diptych.data.shards.corpus import StreamCorpus
from diptych.errors import RecipeError
from diptych.model import Model
from diptych.models.layers.batch_norm import join_batch_norms
from diptych.models.matcher import Matcher
from diptych.models.storage import save_matcher
from diptych.objectives.objective import ObjectiveContext
from diptych.training.context import StageContext, TrainingContext, start_file, training_corpus
from diptych.training.engine.checkpoint import Snapshot
from diptych.training.engine.last_blocks import LAST, last_blocks
from diptych.training.engine.loop import PreparedStage
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.precision import BatchEncoder, LossScaler, in_precision, precision_remark
from diptych.training.engine.step import ClosedFormStep, Step
from diptych.training.engine.trainable import set_trainable
from diptych.training.inputs.base_encodings import BaseEncodings
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.pairs import ImageTextData, StageData
from diptych.training.inputs.phrases import PhraseData
from diptych.training.inputs.stream import StreamData
from diptych.training.inputs.texts import StageTexts
from diptych.training.needs.need import Need, find_need
from diptych.training.recipe import Stage


def prepare_stage(training: TrainingContext, model: Model, number: int, snapshot: Snapshot | None) -> PreparedStage:
    """Prepare a stage from the beginning, or from the snapshot that it resumes from."""
    stage = training.recipe.stage[number - 1]
    corpus = training.corpus
    streams = isinstance(corpus, StreamCorpus)
    train = corpus.nothing() if isinstance(corpus, StreamCorpus) else training_corpus(stage, corpus)
    if snapshot is None:
        if not streams:
            _report_unmatched(training, number, train)
        _report_last_blocks(training, model, stage)
        if remark := precision_remark(stage.precision, model.device):
            training.callbacks.message(f"stage {number}: {remark}")
    set_trainable(model.matcher, stage.trainable, stage.lora)
    join_batch_norms(model.matcher, training.ranks)
    images = StageImages(
        model, stage, training.stores, training.workers, training.progress("features"), training.callbacks.message
    )
    resumed = None if snapshot is None else snapshot.tensors
    context = StageContext(training, number, model, train, images, resumed)
    texts = StageTexts(model, training.stores, training.progress("text features"), training.callbacks.message)
    if snapshot is None and stage.start == "scratch" and not streams:
        images.standardise(train)
        texts.standardise(train.texts if stage.phrases is None else find_mentions(train).phrases)
    needs = tuple(find_need(name).prepare(context) for name in stage.objective.needs)
    base = None if streams else _base_encodings(training, model, stage, train)
    step = make_step(model.matcher, stage, model.device, needs, None if base is None else base.encoder)
    if snapshot is not None:  # after the needs, whose preparation may draw random numbers
        snapshot.restore(step)
    elif stage.interpolate is not None:
        save_matcher(start_file(training.run), model.matcher, model.tokeniser, {"stage": number})
    return PreparedStage(context, step, _stage_data(context, texts, needs, base))


def make_step(
    matcher: Matcher,
    stage: Stage,
    device: torch.device,
    needs: Sequence[Need] = (),
    encoder: BatchEncoder | None = None,
) -> Step:
    """The step of a stage for what is trainable now, with a fresh optimiser and fresh parameters of the objective."""
    objective = stage.objective
    context = ObjectiveContext(matcher.embedding_dim or 0, {need.name: need.size for need in needs})
    initial = {name: tensor.to(device) for name, tensor in objective.initial_parameters(context).items()}
    made = [parameters for need in needs if (parameters := need.make_parameters(initial)) is not None]
    assert len(made) <= 1, "two needs create the parameters of one objective"
    parameters = made[0] if made else nn.ParameterDict({name: nn.Parameter(start) for name, start in initial.items()})
    optimiser = make_optimiser(matcher, stage.optimiser, parameters.values())
    kind = ClosedFormStep if matcher.solves_in_closed_form else Step
    return kind(
        matcher,
        objective,
        optimiser,
        device,
        clip=stage.optimiser.clip,
        chunk=stage.batches.chunk,
        parameters=parameters,
        needs=tuple(needs),
        encoder=in_precision(matcher if encoder is None else encoder, stage.precision, device),
        scaler=LossScaler(stage.precision, device),
    )


def _base_encodings(training: TrainingContext, model: Model, stage: Stage, train: Corpus) -> BaseEncodings | None:
    """What a frozen base computes of train and val, if the stage reads that instead of the model's inputs."""
    items = sum(len(some.image_ids) + len(some.texts) for some in (train, training.corpus.split("val")))
    return BaseEncodings.for_stage(model, stage, items, training.workers, training.progress("encodings"))


def _stage_data(
    context: StageContext, texts: StageTexts, needs: Sequence[Need], base: BaseEncodings | None
) -> StageData:
    """What the stage trains on and is validated on."""
    training, stage, images = context.training, context.stage, context.images
    seed = (training.recipe.seed, context.number)
    extensions = [need.epoch_extension for need in needs if need.epoch_extension is not None]
    if isinstance(training.corpus, StreamCorpus):
        return StreamData(training.corpus, stage, seed, images, texts, ranks=training.ranks)
    if stage.phrases is not None:
        if extensions:
            name = stage.objective.name
            raise RecipeError(f"objective: {name!r} draws from lists of images and texts; leave out phrases")
        return PhraseData(training.corpus, context.train, stage, seed, images, texts, ranks=training.ranks)
    return ImageTextData(
        training.corpus,
        context.train,
        stage,
        seed,
        images,
        texts,
        extensions=extensions,
        base=base,
        ranks=training.ranks,
    )


def _report_last_blocks(training: TrainingContext, model: Model, stage: Stage) -> None:
    """Report which modules are meant by the last blocks of each tower."""
    for part in (*stage.trainable, *(() if stage.lora is None else stage.lora.parts)):
        if part.startswith(LAST):
            training.callbacks.message(f"{part}: {', '.join(last_blocks(model.matcher, part))}")


def _report_unmatched(training: TrainingContext, number: int, train: Corpus) -> None:
    """Report images and texts whose group lacks the other side; once per choice of splits."""
    stage = training.recipe.stage[number - 1]
    everything = training.corpus.split(*stage.splits)
    images, texts = len(everything.image_ids) - len(train.image_ids), len(everything.texts) - len(train.texts)
    is_reported = any(earlier.splits == stage.splits for earlier in training.recipe.stage[: number - 1])
    if (images or texts) and not is_reported:
        training.callbacks.message(
            f"left out of training, because their groups lack the other side: images {images:,}, texts {texts:,}; "
            "`diptych data check` names them",
            "yellow",
        )
