"""The hardest negatives of a random training batch, with what they cost (Faghri et al. 2018, Fig. 3).

The cost of a hardest negative is its hinge: [m + s(i, c') - s(i, c)]+ for an image, [m + s(i', c) - s(i, c)]+ for a
text, with the margin m of the run's last stage. Images and texts of the same group are no negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diptych.data.corpus import Corpus, Integers
from diptych.data.sampling.pairs import PairSampler
from diptych.errors import DataError
from diptych.models.trained import Trained
from diptych.report.pictures import image_thumbnail
from diptych.report.run_page import Card, Cards, CardSection, Labelled
from diptych.report.sections.examples import one_a_group
from diptych.training.recipe import Stage
from diptych.training.recipe_loader import load_recipe

BATCH = 128
SHOWN = 4


@dataclass(frozen=True)
class Hardest:
    """The hardest negative of each query of a batch: its place, its cost, and whether there is one at all."""

    places: Tensor
    costs: Tensor
    exists: Tensor


@dataclass(frozen=True, eq=False)
class DrawnBatch:
    """Pairs drawn as training draws them, and their scores: image k of pair k with text l of pair l."""

    corpus: Corpus
    images: Integers  # (pairs,), rows of the corpus
    texts: Integers  # (pairs,)
    scores: Tensor  # (pairs, pairs)

    @property
    def positives(self) -> Tensor:
        """Which images and texts share a group."""
        groups = torch.from_numpy(self.corpus.text_groups[self.texts])
        return groups[:, None] == groups[None, :]


def hardest(scores: Tensor, positives: Tensor, margin: float) -> Hardest:
    """The highest scoring negative in each row of a batch's scores, and its hinge against the pair on the diagonal."""
    negatives, places = scores.masked_fill(positives, -torch.inf).max(1)  # (pairs,)
    costs = (margin + negatives - scores.diagonal()).clamp(min=0)
    return Hardest(places, costs, (~positives).any(1))


def hard_negatives(
    run: Path, trained: Trained, corpus: Corpus, *, size: int = BATCH, seed: int = 0
) -> CardSection | None:
    """A run's hardest negatives in one batch of what it was trained on; None where the corpus holds too little of it.

    Only the drawn images and texts are read and encoded.
    """
    stage = load_recipe(str(run / "recipe.toml")).stage[-1]
    batch = draw_batch(trained, corpus, stage.splits, size, seed)
    if batch is None:
        return None
    margin = getattr(stage.objective, "margin", None) or 0.0
    random = np.random.default_rng(seed)
    groups = []
    for direction, scores in (("texts", batch.scores), ("images", batch.scores.T)):
        found = hardest(scores, batch.positives, margin)
        top, drawn = _chosen(batch, found, random)
        show = _text_card if direction == "texts" else _image_card
        for title, rows in (("the highest costs", top), (f"drawn at random with seed {seed}", drawn)):
            groups.append(Cards(f"Hardest negative {direction}: {title}", [show(batch, found, row) for row in rows]))
    return CardSection(_note(corpus, stage, batch, seed), groups)


@torch.inference_mode()
def draw_batch(trained: Trained, corpus: Corpus, splits: tuple[str, ...], size: int, seed: int) -> DrawnBatch | None:
    """Draw and score one batch of these splits; None where no two pairs of different groups can be drawn and read."""
    if not set(splits) <= set(corpus.split_sizes()):
        return None
    images = np.flatnonzero(np.isin(corpus.image_splits, splits))
    texts = np.flatnonzero(np.isin(corpus.text_splits, splits))
    part = corpus.take(images, texts).matched()
    if len(set(part.text_groups.tolist())) < 2:
        return None
    pairs = PairSampler(part, size, (seed,)).epoch(0)[0]
    distinct, image_of = np.unique(pairs.images, return_inverse=True)
    drawn = part.take(distinct, pairs.texts)
    try:
        encoded, readable, _ = trained.encode_images(drawn)
    except DataError:  # none of the drawn images can be read; a report can do without them
        return None
    row_of = np.full(len(distinct), -1)
    row_of[readable] = np.arange(len(readable))
    kept = np.flatnonzero(row_of[image_of] >= 0)  # pairs whose image could be read
    if len(set(drawn.text_groups[kept].tolist())) < 2:
        return None
    rows = torch.from_numpy(row_of[image_of[kept]]).to(encoded.device)
    texts_kept = trained.encode_texts([drawn.texts[k] for k in kept.tolist()])
    scores = trained.matcher.score(encoded[rows], texts_kept)  # (pairs, pairs)
    return DrawnBatch(drawn, image_of[kept], kept, scores.float().cpu())


def _chosen(batch: DrawnBatch, found: Hardest, random: np.random.Generator) -> tuple[list[int], list[int]]:
    """Rows to show, each of another group: those of the highest costs, and some of the rest at random."""
    rows = np.flatnonzero(found.exists.numpy())
    by_cost = rows[np.argsort(-found.costs.numpy()[rows], kind="stable")]
    groups = batch.corpus.text_groups[batch.texts]
    top = one_a_group(by_cost, groups, SHOWN)
    rest = np.setdiff1d(rows, np.flatnonzero(np.isin(groups, groups[top])))
    return top, one_a_group(random.permutation(rest), groups, SHOWN)


def _text_card(batch: DrawnBatch, found: Hardest, row: int) -> Card:
    """An image with its own text and the negative text that scores highest."""
    image, other = int(batch.images[row]), int(found.places[row])
    beside = [
        Labelled("GT", batch.corpus.texts[batch.texts[row]]),
        Labelled("HN", batch.corpus.texts[batch.texts[other]], f"{found.costs[row]:.2f}"),
    ]
    return Card("image to text", batch.corpus.image_ids[image], beside, image_thumbnail(batch.corpus, image))


def _image_card(batch: DrawnBatch, found: Hardest, row: int) -> Card:
    """A text with its own image and the negative image that scores highest."""
    own, other = int(batch.images[row]), int(batch.images[found.places[row]])
    cost = f"{found.costs[row]:.2f}"
    beside = [
        Labelled(label, batch.corpus.image_ids[image], value, picture=image_thumbnail(batch.corpus, image))
        for label, image, value in (("GT", own, ""), ("HN", other, cost))
    ]
    return Card("text to image", batch.corpus.texts[batch.texts[row]], beside)


def _note(corpus: Corpus, stage: Stage, batch: DrawnBatch, seed: int) -> str:
    margin = getattr(stage.objective, "margin", None)
    cost = "[score of HN − score of GT]" if margin is None else f"[{margin:g} + score of HN − score of GT]"
    return (
        f"{len(batch.texts)} pairs of {corpus.name}, {'+'.join(stage.splits)}, drawn as one batch with seed {seed}. "
        "GT is the pair's own, HN the negative of the batch that the trained model scores highest. In brackets what HN "
        f"costs: {cost}, at least 0; what costs nothing teaches nothing. High costs are what training still "
        "learns from, or captions that fit several images."
    )
