"""The hardest negatives of a random training batch and their hinge costs (Faghri et al. 2018, Fig. 3).

The cost of a hardest negative is its hinge: [m + s(i, c') - s(i, c)]+ for an image, [m + s(i', c) - s(i, c)]+ for a
text, with the margin m of the run's last stage. Images and texts of the same group are not negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Integers
from diptych.data.sampling.pairs import PairSampler
from diptych.errors import DataError
from diptych.model import Model
from diptych.report.elements import DirectionName
from diptych.report.sections.examples import first_per_group
from diptych.report.thumbnails import corpus_thumbnail_uri
from diptych.training.recipe import Stage
from diptych.training.recipe_loader import load_recipe

BATCH_SIZE = 128
SHOWN = 4  # queries per heading


@dataclass(frozen=True)
class CardEntry:
    """A text, or an image by its id and picture, with a label such as GT; `value` is shown in brackets."""

    label: str
    text: str
    value: str = ""
    correct: bool | None = None
    picture: str | None = None


@dataclass(frozen=True)
class QueryCard:
    """A query and its entries: texts for an image (`query_text` is its id), images for a text."""

    direction: DirectionName
    query_text: str
    entries: Sequence[CardEntry]
    query_picture: str | None = None


@dataclass(frozen=True)
class CardGroup:
    """Cards under a heading that says how they were selected."""

    heading: str
    cards: Sequence[QueryCard]


@dataclass(frozen=True)
class HardNegativesSection:
    """Groups of cards, and a note on how to read them."""

    note: str
    groups: Sequence[CardGroup]


@dataclass(frozen=True)
class HardestNegatives:
    """The hardest negative of each query of a batch: its column, its cost, and whether there is any negative."""

    columns: Tensor
    costs: Tensor
    exists: Tensor


@dataclass(frozen=True, eq=False)
class ScoredBatch:
    """Pairs sampled as in training, and the score of image k of pair k with text l of pair l."""

    corpus: Corpus
    images: Integers  # (pairs,), rows of the corpus
    texts: Integers  # (pairs,)
    scores: Tensor  # (pairs, pairs)

    @property
    def positives(self) -> Tensor:
        """Which images and texts share a group."""
        groups = torch.from_numpy(self.corpus.text_groups[self.texts])
        return groups[:, None] == groups[None, :]


def hard_negatives_section(
    run: Path, model: Model, corpus: Corpus, *, size: int = BATCH_SIZE, seed: int = 0
) -> HardNegativesSection | None:
    """A run's hardest negatives in one batch of its training data; None if the corpus does not contain enough of it.

    Only the sampled images and texts are read and encoded. A run that was not trained has no training data.
    """
    stages = load_recipe(str(run / "recipe.toml")).stage
    if not stages:
        return None
    stage = stages[-1]
    batch = sample_batch(model, corpus, stage.splits, size, seed)
    if batch is None:
        return None
    margin = getattr(stage.objective, "margin", None) or 0.0
    random = np.random.default_rng(seed)
    groups = []
    for kind, scores in (("texts", batch.scores), ("images", batch.scores.T)):
        found = hardest_negatives(scores, batch.positives, margin)
        costliest, sampled = _select(batch, found, random)
        card = _text_card if kind == "texts" else _image_card
        for title, rows in (("highest costs", costliest), (f"random sample, seed {seed}", sampled)):
            groups.append(CardGroup(f"Hardest negative {kind}: {title}", [card(batch, found, row) for row in rows]))
    return HardNegativesSection(_note(corpus, stage, batch, seed), groups)


def hardest_negatives(scores: Tensor, positives: Tensor, margin: float) -> HardestNegatives:
    """The negative with the highest score in each row of a batch, and its hinge against the pair on the diagonal."""
    negatives, columns = scores.masked_fill(positives, -torch.inf).max(1)  # (pairs,)
    costs = (margin + negatives - scores.diagonal()).clamp(min=0)
    return HardestNegatives(columns, costs, (~positives).any(1))


@torch.inference_mode()
def sample_batch(model: Model, corpus: Corpus, splits: tuple[str, ...], size: int, seed: int) -> ScoredBatch | None:
    """Sample and score one batch of these splits; None without two readable pairs of different groups."""
    if not set(splits) <= set(corpus.split_sizes()):
        return None
    images = np.flatnonzero(np.isin(corpus.image_splits, splits))
    texts = np.flatnonzero(np.isin(corpus.text_splits, splits))
    part = corpus.take(images, texts).matched()
    if len(set(part.text_groups.tolist())) < 2:
        return None
    pairs = PairSampler(part, size, (seed,)).epoch(0)[0]
    distinct, image_of = np.unique(pairs.images, return_inverse=True)
    sampled = part.take(distinct, pairs.texts)
    try:
        encoded, readable, _ = model.torch_engine.encode_corpus_images(sampled)
    except DataError:  # no sampled image can be read; the rest of the report does not need them
        return None
    row_of = np.full(len(distinct), -1)
    row_of[readable] = np.arange(len(readable))
    kept = np.flatnonzero(row_of[image_of] >= 0)  # pairs whose image could be read
    if len(set(sampled.text_groups[kept].tolist())) < 2:
        return None
    rows = torch.from_numpy(row_of[image_of[kept]]).to(encoded.device)
    encoded_texts = model.torch_engine.text_tensor([sampled.texts[k] for k in kept.tolist()])
    scores = model.matcher.score(encoded[rows], encoded_texts)  # (pairs, pairs)
    return ScoredBatch(sampled, image_of[kept], kept, scores.float().cpu())


def _select(batch: ScoredBatch, found: HardestNegatives, random: np.random.Generator) -> tuple[list[int], list[int]]:
    """Rows to show, each of a different group: those with the highest costs, and a random sample of the rest."""
    rows = np.flatnonzero(found.exists.numpy())
    by_cost = rows[np.argsort(-found.costs.numpy()[rows], kind="stable")]
    groups = batch.corpus.text_groups[batch.texts]
    costliest = first_per_group(by_cost, groups, SHOWN)
    rest = np.setdiff1d(rows, np.flatnonzero(np.isin(groups, groups[costliest])))
    return costliest, first_per_group(random.permutation(rest), groups, SHOWN)


def _text_card(batch: ScoredBatch, found: HardestNegatives, row: int) -> QueryCard:
    """An image, its text in the batch, and its hardest negative text."""
    image, negative = int(batch.images[row]), int(found.columns[row])
    entries = [
        CardEntry("GT", batch.corpus.texts[batch.texts[row]]),
        CardEntry("HN", batch.corpus.texts[batch.texts[negative]], f"{found.costs[row]:.2f}"),
    ]
    picture = corpus_thumbnail_uri(batch.corpus, image)
    return QueryCard("image to text", batch.corpus.image_ids[image], entries, picture)


def _image_card(batch: ScoredBatch, found: HardestNegatives, row: int) -> QueryCard:
    """A text, its image in the batch, and its hardest negative image."""
    positive, negative = int(batch.images[row]), int(batch.images[found.columns[row]])
    cost = f"{found.costs[row]:.2f}"
    entries = [
        CardEntry(label, batch.corpus.image_ids[image], value, picture=corpus_thumbnail_uri(batch.corpus, image))
        for label, image, value in (("GT", positive, ""), ("HN", negative, cost))
    ]
    return QueryCard("text to image", batch.corpus.texts[batch.texts[row]], entries)


def _note(corpus: Corpus, stage: Stage, batch: ScoredBatch, seed: int) -> str:
    margin = getattr(stage.objective, "margin", None)
    cost = "score of HN − score of GT" if margin is None else f"{margin:g} + score of HN − score of GT"
    return (
        f"One batch of {len(batch.texts)} pairs from {corpus.name}, split {'+'.join(stage.splits)}, sampled with seed "
        f"{seed}. GT is the positive of the pair, HN the negative of the batch with the highest score. The number in "
        f"brackets is the cost of HN: {cost}, at least 0. A negative with cost 0 contributes nothing to training. High "
        "costs show what the model has yet to learn, or captions that fit several images."
    )
