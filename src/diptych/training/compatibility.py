"""Every rule about what a recipe may combine: stages with data, models with objectives, sampling with both.

A rule about keys of one table is a validator of that table's class; a rule about several tables, the model or the data
is here. `RECIPE_RULES` look at recipe and data; `MODEL_RULES` also look at the stage's model, which is built on torch's
meta device, without weights. All are checked before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch

from diptych.data.corpus import Corpus
from diptych.errors import DataError, DiptychError, RecipeError
from diptych.models.matcher import Matcher, ModelSettings
from diptych.models.matchers.projected import Projected
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.training.case import Case
from diptych.training.engine.optimiser import make_optimiser
from diptych.training.engine.trainable import set_trainable
from diptych.training.recipe import Recipe


@dataclass(frozen=True)
class Rule:
    """A combination that cannot work, what is wrong with it, and what to do.

    `message` and `remedy` are format strings over `case` and `stage` (double braces are literal). The message of a
    RecipeError begins with the key in the stage, or in the recipe unless `of_stage`; `name` identifies the rule in its
    test.
    """

    name: str
    is_broken: Callable[[Case], Any]
    message: str
    remedy: str
    error: type[DiptychError] = RecipeError
    of_stage: bool = True

    def check(self, case: Case) -> None:
        """Raise an error if the rule is broken."""
        if self.is_broken(case):
            text = "; ".join(part.format(case=case, stage=case.stage) for part in (self.message, self.remedy) if part)
            names_stage = self.of_stage and self.error is RecipeError
            raise self.error(f"stage.{case.number}.{text}" if names_stage else text)


RECIPE_RULES = (
    Rule(
        "the whole training set of a stream",
        lambda case: case.needs_all_of_stream,
        "{case.needs_all_of_stream}, and {case.corpus.name} is a stream of shards",
        "train on the data that the shards were made of, or leave it out",
    ),
    Rule(
        "empty training split",
        lambda case: case.empty_split,
        "{case.corpus.name}: stage {case.number} of the recipe trains on the split {case.empty_split}, which has no "
        "images (images: {case.split_sizes})",
        "use another recipe, or --set stage.{case.number}.splits=\"['train']\"",
        DataError,
    ),
    Rule(
        "unknown selection metric",
        lambda case: case.stage.select not in case.selectable,
        "select = {stage.select!r}: not a metric of this stage",
        "{case.select_suggestion}",
    ),
    Rule(
        "no previous stage",
        lambda case: case.number == 1 and case.stage.start == "previous",
        "start = 'previous': this is the first stage",
        "use 'scratch' or the path of a run",
    ),
    Rule(
        "interpolation from scratch",
        lambda case: case.stage.interpolate is not None and case.stage.start == "scratch",
        "interpolate: the stage starts from scratch, and random weights know nothing that could be kept",
        "start from a run, or leave interpolate out",
    ),
    Rule(
        "interpolation with a random head",
        lambda case: case.stage.interpolate is not None and case.has_random_head,
        "interpolate: the head starts at random, so the weights before and after it are not of one model",
        "set head.residual = true, or leave interpolate out",
    ),
    Rule(
        "text settings of a model with its own tokeniser",
        lambda case: case.overruled_text_key,
        "text.{case.overruled_text_key}: the model's pretrained text tower brings its own tokeniser",
        "leave text.{case.overruled_text_key} out",
        of_stage=False,
    ),
    Rule(
        "offline negatives without lists",
        lambda case: "offline" in case.objective.needs and case.stage.offline is None,
        "offline: the objective {case.objective.name!r} draws from mined lists",
        'name a run that has mined, such as offline = {{ lists = "runs/vsepp" }}, or "previous" or "start"',
    ),
    Rule(
        "lists that nobody reads",
        lambda case: case.stage.offline is not None and "offline" not in case.objective.needs,
        "offline: the objective {case.objective.name!r} reads no offline negatives",
        "use 'quintuplet'",
    ),
    Rule(
        "offline negatives of a single group",
        lambda case: case.stage.offline is not None and case.group_count < 2,
        "{case.corpus.name}: all training images and texts belong to one group, so there are no negatives",
        "use data with several groups",
        DataError,
    ),
    Rule(
        "lists of a later stage",
        lambda case: not case.mining_stage_exists,
        "offline.lists = {stage.offline.lists!r}: not an earlier stage",
        "name an earlier stage, or a run that has mined",
    ),
    Rule(
        "lists of a start from scratch",
        lambda case: case.stage.offline is not None and case.stage.offline.by_start and case.stage.start == "scratch",
        "offline.lists = 'start': the stage starts from scratch, and random weights find no hard negatives",
        "start from a run, or name an earlier stage or a run that has mined",
    ),
    Rule(
        "classes of a single group",
        lambda case: "classes" in case.objective.needs and case.group_count < 2,
        "{case.corpus.name}: all training images and texts belong to one group, so there is nothing to classify",
        "use data with several groups",
        DataError,
    ),
    Rule(
        "more clusters than groups",
        lambda case: case.classes.clusters is not None and case.classes.clusters >= case.group_count,
        "objective.clusters = {case.classes.clusters}: the data has {case.group_count} groups",
        "use fewer clusters",
    ),
    Rule(
        "a sample of classes no larger than a batch",
        lambda case: (
            case.classes.sampled is not None
            and case.classes.sampled < case.class_count
            and case.classes.sampled <= case.stage.batches.size
        ),
        "objective.sampled = {case.classes.sampled}: a batch of {stage.batches.size} pairs may have as many classes "
        "and needs others to compare with",
        "use more than batches.size",
    ),
    Rule(
        "pair scores without negatives",
        lambda case: (
            not case.objective.scores_all_pairs and not case.stage.batches.rivals and case.stage.phrases is None
        ),
        "batches.rivals: {case.objective.name!r} scores each pair against negatives drawn for it",
        "set batches.rivals = 1",
    ),
    Rule(
        "text negatives of phrases",
        lambda case: case.stage.batches.rivals and case.stage.phrases is not None,
        "batches.rivals: the negatives of a phrase are regions of its photo",
        "set phrases.rivals",
    ),
    Rule(
        "neighbours of all positives",
        lambda case: (
            case.stage.batches.neighbours and case.stage.phrases is not None and case.stage.phrases.positives == "all"
        ),
        "phrases.positives = 'all': every positive is in the batch already",
        "leave out batches.neighbours",
    ),
    Rule(
        "neighbourhood constraints without neighbours",
        lambda case: (
            # Objectives that compare within a modality and know the roles of pairs have neighbourhood constraints.
            {"within", "roles"} <= set(case.objective.needs) and not case.stage.batches.neighbours
        ),
        "batches.neighbours: neighbourhood constraints need neighbours in the batch",
        "set it to true",
    ),
    Rule(
        "closed form in one epoch",
        lambda case: case.objective.closed_form and (case.stage.epochs != 1 or case.stage.batches.neighbours),
        "epochs: {case.objective.name!r} is solved in one pass over the pairs",
        "set epochs = 1 and no neighbours",
    ),
    Rule(
        "mixed precision in closed form",
        lambda case: case.objective.closed_form and case.stage.precision != "float32",
        "precision = {stage.precision!r}: {case.objective.name!r} solves equations, which half precision would spoil",
        "leave precision out",
    ),
    Rule(
        "classes of phrases",
        lambda case: "classes" in case.objective.needs and case.stage.phrases is not None,
        "objective: {case.objective.name!r} makes each group of images and texts a class; phrases have no groups",
        "leave out phrases",
    ),
    Rule(
        "chunks of an objective that needs all scores",
        lambda case: case.stage.batches.chunk is not None and not case.objective.supports_chunks,
        "batches.chunk: {case.objective.name!r} needs all scores of a batch at once",
        "leave chunk out",
    ),
    Rule(
        "chunks with needs",
        lambda case: case.stage.batches.chunk is not None and set(case.objective.needs) - {"within"},
        "batches.chunk: {case.objective.name!r} needs {case.unchunked_needs} of a whole batch",
        "leave chunk out",
    ),
    Rule(
        "empty val split",
        lambda case: not case.corpus.split_sizes().get("val"),
        "{case.corpus.name}: the val split is empty, and stage.1.select = {case.recipe.stage[0].select!r} chooses the "
        "best snapshot on it",
        "{case.val_remedy}",
        DataError,
    ),
    Rule("no phrases", lambda case: case.why_no_phrases, "{case.why_no_phrases}", "", DataError),
)

MODEL_RULES = (
    Rule(
        "a model that is measured on the whole training set of a stream",
        lambda case: case.model_needs_all_of_stream,
        "{case.model_needs_all_of_stream}, and {case.corpus.name} is a stream of shards",
        "use another model, or the data that the shards were made of",
        of_stage=False,
    ),
    Rule(
        "random crops of proposed regions",
        lambda case: case.proposes_regions and case.stage.crops is not None,
        'crops = "{stage.crops}": {case.region_method} proposes boxes in the whole photo',
        "leave crops out",
    ),
    Rule(
        "proposed regions of a trainable backbone",
        lambda case: case.proposes_regions and case.trains_backbone,
        "trainable: {case.region_method} pools its regions from a frozen backbone",
        'leave the backbone out, or use regions = {{ method = "grid" }}',
    ),
    Rule(
        "phrases without regions",
        lambda case: case.stage.phrases is not None and not case.matcher.localises,
        "phrases: the model reads whole images",
        "use a two-branch model with model.image.name = 'regions'",
    ),
    Rule(
        "regions without phrases",
        lambda case: case.stage.phrases is None and case.matcher.localises,
        "phrases: the model reads regions of photos, and the stage has no such table",
        "set phrases = {{}}",
    ),
    Rule(
        "pieces for a fitted text tower",
        lambda case: case.reads_pieces and case.fitted_tower,
        "model.text: {case.fitted_tower!r} is fitted to whole words, and texts are read in pieces",
        "set text.tokeniser = 'words', or use another text tower",
        of_stage=False,
    ),
    Rule(
        "drawn pairs with offline negatives, chunks or captions",
        lambda case: (
            case.draws_more
            and (case.stage.offline is not None or case.stage.batches.chunk is not None or case.matcher.extra_terms)
        ),
        "batches: neighbours, rivals and phrases cannot be combined with offline, chunk or a captioning model",
        "leave one of them out",
    ),
    Rule(
        "closed form",
        lambda case: case.objective.closed_form != case.matcher.solves_in_closed_form,
        "objective: {case.objective.name!r} and the model {case.model_name!r} cannot be combined",
        "'correlation' belongs to 'cca', every other objective to another model",
    ),
    Rule(
        "gradients in closed form",
        lambda case: (
            case.matcher.solves_in_closed_form and (case.stage.lora is not None or case.stage.interpolate is not None)
        ),
        "objective: {case.objective.name!r} computes all weights in closed form",
        "leave out lora and interpolate",
    ),
    Rule(
        "classes of sets",
        lambda case: "classes" in case.objective.needs and case.matcher.embedding_dim is None,
        "objective: {case.objective.name!r} classifies vectors",
        "use an embedding model",
    ),
    Rule(
        "clusters without stored features",
        lambda case: case.finds_clusters and (case.trains_backbone or case.matcher.image_input.kind == "pixels"),
        "objective.clusters: clusters are found among stored features",
        "freeze the backbone first",
    ),
    Rule(
        "crops without a backbone",
        lambda case: case.stage.crops is not None and case.matcher.image_input.crops is None,
        'crops = "{stage.crops}": random crops need pictures and an image tower with a backbone',
        "leave crops out",
    ),
    Rule(
        "views for a model that reads one vector",
        lambda case: case.regions is not None and not case.regions.from_map and not case.matcher.reads_views,
        "model.image: 'views' gives several vectors per image, which only 'dual_path' reads",
        "use 'backbone'",
    ),
    Rule(
        "chunks of a model with loss terms",
        lambda case: case.stage.batches.chunk is not None and case.matcher.extra_terms,
        "batches.chunk: the model has loss terms of its own ({case.extra_terms})",
        "leave chunk out",
    ),
    Rule(
        "chunks with batch norm",
        lambda case: case.stage.batches.chunk is not None and case.batch_norm,
        "batches.chunk: {case.batch_norm} normalises by the statistics of the batch, which would be those of a chunk",
        "freeze it, or leave chunk out",
    ),
    Rule(
        "comparison within a modality",
        lambda case: "within" in case.objective.needs and not case.matcher.compares_within_modality,
        "objective: {case.objective.name!r} compares images with images",
        "use an embedding model",
    ),
)


def check_recipe(recipe: Recipe, corpus: Corpus) -> None:
    """Check what needs no model; raises RecipeError or DataError."""
    for number in range(1, len(recipe.stage) + 1):
        for rule in RECIPE_RULES:
            rule.check(Case(recipe, number, corpus))


def check_models(
    recipe: Recipe, settings: ModelSettings, corpus: Corpus, tokeniser: Tokeniser | None = None
) -> Matcher:
    """Check every stage with its model and the tokeniser, and return the last stage's, on the meta device."""
    for case in _cases(
        recipe, settings, corpus, tokeniser
    ):  # one at a time: stages share a matcher and change what is trainable
        matcher = case.matcher
        for rule in MODEL_RULES:
            rule.check(case)
    return matcher


def _cases(recipe: Recipe, settings: ModelSettings, corpus: Corpus, tokeniser: Tokeniser | None) -> Iterator[Case]:
    matcher: Matcher | None = None
    for number, stage in enumerate(recipe.stage, 1):
        if matcher is None or stage.start != "previous":
            with torch.device("meta"):
                matcher = settings.build()
        try:
            with torch.device("meta"):
                matcher = matcher if stage.head is None else Projected(matcher, stage.head)
                trained = matcher if stage.lora is None else deepcopy(matcher)  # factors are merged after the stage
                set_trainable(trained, stage.trainable, stage.lora)
                make_optimiser(trained, stage.optimiser)  # raises for parts that the model does not have
        except RecipeError as error:
            raise RecipeError(f"stage.{number}.{error}") from None
        yield Case(recipe, number, corpus, trained, tokeniser)
