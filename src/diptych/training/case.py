"""One stage of a recipe on a corpus, as the rules of `compatibility` look at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch.nn.modules.batchnorm import _BatchNorm

from diptych.data.corpus import Corpus
from diptych.data.phrases import find_mentions
from diptych.data.shards.corpus import StreamCorpus
from diptych.data.splitting import SPLIT_IT
from diptych.errors import DataError, did_you_mean
from diptych.evaluation.localisation.phrase_metrics import PHRASE_SELECTION_METRICS
from diptych.evaluation.metrics.recall import SELECTION_METRICS
from diptych.features.regions import Regions
from diptych.models.matcher import Matcher
from diptych.objectives.extras import ClassOptions
from diptych.objectives.objective import Objective
from diptych.text.tokenisers.tokeniser import Tokeniser
from diptych.text.vocabulary import Vocabulary
from diptych.training.context import training_corpus
from diptych.training.engine.trainable import train_mode
from diptych.training.recipe import Recipe, Stage


@dataclass(frozen=True)
class Case:
    """A stage, by its number from 1, its model and its tokeniser; rules about recipe and data come without them."""

    recipe: Recipe
    number: int
    corpus: Corpus
    built_matcher: Matcher | None = None
    tokeniser: Tokeniser | None = None

    @property
    def stage(self) -> Stage:
        """The stage's part of the recipe."""
        return self.recipe.stage[self.number - 1]

    @property
    def previous(self) -> Stage | None:
        """The stage before, if any."""
        return self.recipe.stage[self.number - 2] if self.number > 1 else None

    @property
    def objective(self) -> Objective:
        """The stage's objective."""
        return self.stage.objective

    @property
    def matcher(self) -> Matcher:
        """The stage's model, without memory."""
        assert self.built_matcher is not None, "a recipe rule has no model"
        return self.built_matcher

    @property
    def needs_all_of_stream(self) -> str | None:
        """What a stage of a stream needs the whole training set for, if anything."""
        if not isinstance(self.corpus, StreamCorpus):
            return None
        stage, name = self.stage, repr(self.objective.name)
        reasons = {
            "offline: negatives are mined over the whole training set": stage.offline or self._needs("offline"),
            f"objective: {name} makes each training group a class": self._needs("classes"),
            f"objective: {name} is solved over all pairs at once": self.objective.closed_form,
            "batches.neighbours: second positives are drawn from all training pairs": stage.batches.neighbours,
            "batches.rivals: negatives are drawn from all training texts": stage.batches.rivals,
            "phrases: shards hold no phrases and boxes": stage.phrases is not None,
        }
        return next((reason for reason, is_so in reasons.items() if is_so), None)

    def _needs(self, need: str) -> bool:
        return need in self.objective.needs

    @property
    def model_needs_all_of_stream(self) -> str | None:
        """What the model needs the whole training set for, if anything."""
        if not isinstance(self.corpus, StreamCorpus):
            return None
        texts, scratch = self.matcher.cached_text_tower, self.stage.start == "scratch"
        images, after_texts = self.matcher.standardised_images, self.matcher.standardised_texts
        reasons = {
            f"model.text: {self.fitted_tower!r} is fitted to all training texts": self.fitted_tower and scratch,
            "model.text: features are standardised by all training texts": scratch and texts and texts.standardises,
            "model.image: vectors are standardised by all training images": scratch and images,
            "model.standardise: vectors are standardised by all training texts": scratch and after_texts,
            "model.image: reads features that come with the data": self.matcher.image_input.kind == "features",
            f"model.image: {self.region_method} stores the boxes of all training images": self.proposes_regions,
        }
        return next((reason for reason, is_so in reasons.items() if is_so), None)

    @property
    def reads_pieces(self) -> bool:
        """Whether texts are read in pieces of words."""
        return self.tokeniser is not None and not isinstance(self.tokeniser, Vocabulary)

    @property
    def overruled_text_key(self) -> str | None:
        """A key of the recipe's `text` table that a model with its own tokeniser would overrule, if any."""
        text, model = self.recipe.text, self.recipe.model
        keys = {"tokeniser": text.tokeniser != "words", "vectors": text.vectors is not None, "grow": text.grow}
        key = next((key for key, is_given in keys.items() if is_given), None)
        return key if key and model is not None and model.tokeniser() is not None else None

    @property
    def fitted_tower(self) -> str | None:
        """The name of the text tower that is fitted to the training texts, if any."""
        tower = self.matcher.fitted_text_tower
        return None if tower is None else tower.settings.name

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.matcher.settings.name

    @property
    def regions(self) -> Regions | None:
        """The regions that the model reads, if any."""
        return self.matcher.image_input.regions

    @property
    def region_method(self) -> str:
        """How the regions are found."""
        return "" if self.regions is None else self.regions.method

    @property
    def proposes_regions(self) -> bool:
        """Whether regions are proposed for each photo and pooled from a backbone's map."""
        return self.regions is not None and self.regions.are_boxes and self.matcher.pretrained is not None

    @property
    def trains_backbone(self) -> bool:
        """Whether the backbone is trained."""
        backbone = self.matcher.pretrained
        return backbone is not None and any(parameter.requires_grad for parameter in backbone.parameters())

    @property
    def has_random_head(self) -> bool:
        """Whether the stage attaches a head that starts at random."""
        return self.stage.head is not None and not self.stage.head.residual

    @property
    def draws_more(self) -> bool:
        """Whether more than the pairs themselves is drawn for a batch."""
        return self.stage.batches.neighbours or self.stage.batches.rivals > 0 or self.stage.phrases is not None

    @property
    def extra_terms(self) -> str:
        """The names of the model's own loss terms."""
        return ", ".join(self.matcher.extra_terms)

    @property
    def unchunked_needs(self) -> str:
        """The needs that a batch in chunks cannot supply."""
        return ", ".join(need for need in self.objective.needs if need != "within")

    @property
    def classes(self) -> ClassOptions:
        """How the groups become classes, for an objective that classifies them."""
        options = self.objective.need_options("classes") if "classes" in self.objective.needs else None
        return options or ClassOptions()

    @property
    def finds_clusters(self) -> bool:
        """Whether the stage has to cluster the groups; one that starts from a run may take that run's clusters."""
        if self.classes.clusters is None:
            return False
        if self.stage.start != "previous" or self.previous is None:
            return self.stage.start == "scratch"
        return self.classes.clusters != Case(self.recipe, self.number - 1, self.corpus).classes.clusters

    @cached_property
    def group_count(self) -> int:
        """The number of groups in the training data."""
        return len(np.unique(training_corpus(self.stage, self.corpus).text_groups))

    @property
    def class_count(self) -> int:
        """The number of classes."""
        return self.classes.clusters or self.group_count

    @property
    def batch_norm(self) -> str | None:
        """The name of a layer that normalises by the statistics of the batch, if any."""
        train_mode(self.matcher)
        layers = (name for name, part in self.matcher.named_modules() if isinstance(part, _BatchNorm) and part.training)
        return next(layers, None)

    @property
    def split_sizes(self) -> dict[str, int]:
        """The number of images in each split."""
        return dict(self.corpus.split_sizes())

    @property
    def val_remedy(self) -> str:
        """How the data gets a val split."""
        marked = "mark some images as val (a split column, or a folder val/)"
        return marked if self.corpus.split_origin == "source" else f"{SPLIT_IT}, or {marked}"

    @property
    def empty_split(self) -> str | None:
        """A training split without images, if any."""
        return next((split for split in self.stage.splits if not self.corpus.split_sizes().get(split)), None)

    @property
    def selectable(self) -> tuple[str, ...]:
        """The metrics that the best snapshot can be selected by."""
        return SELECTION_METRICS if self.stage.phrases is None else PHRASE_SELECTION_METRICS

    @property
    def select_suggestion(self) -> str:
        """The nearest metric."""
        return did_you_mean(self.stage.select, self.selectable)

    @property
    def why_no_phrases(self) -> str | None:
        """Why the phrases of a split cannot be used, if they are needed and cannot."""
        for splits in (self.stage.splits, ("val",)) if self.stage.phrases is not None else ():
            try:
                find_mentions(self.corpus.split(*splits))
            except DataError as error:
                return f"{error} (stage {self.number} needs some in the split {'+'.join(splits)})"
        return None

    @property
    def mining_stage_exists(self) -> bool:
        """Whether the stage that mines, if any, comes before this one."""
        mining_stage = None if self.stage.offline is None else self.stage.offline.mining_stage(self.number)
        return mining_stage is None or 1 <= mining_stage < self.number
