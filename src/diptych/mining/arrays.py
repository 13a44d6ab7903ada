"""Mining a caller's own arrays: the hardest negatives of each image and each text, by embeddings of whatever model.

Scores are computed in tiles, each once for both directions: memory use is that of the arrays, the lists and one tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from diptych.data.corpus import Floats, Integers
from diptych.errors import DataError, ScoreError
from diptych.evaluation.array_groups import GroupLabels, Groups, read_groups
from diptych.evaluation.array_scores import Array, Similarity, read_embeddings, similarity_score, tile_size
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.metrics.tiles import check_positives
from diptych.evaluation.tabular import TabularResult, TextTable
from diptych.mining.exclusions import Exclusions
from diptych.mining.hardness import Hardness, sample_positives
from diptych.mining.lists import ListRows, list_shortage
from diptych.mining.mine import TOP_IMAGES, TOP_TEXTS
from diptych.mining.score_pass import ScorePass
from diptych.mining.top_scores import EMPTY, items_of, scores_of
from diptych.progress import ProgressCallback

_PAIRS_AT_ONCE = 32  # positive pairs are the diagonals of tiles of this size


@dataclass(frozen=True, eq=False, repr=False)
class MinedNegatives(TabularResult):
    """The hardest texts of each image and the hardest images of each text, hardest first, with their scores.

    A list that is shorter than others is padded with -1, and its scores with minus infinity. `hardness` has the median
    scores of positive pairs and of the lists, and `shortage` a sentence if there were fewer negatives than requested.
    """

    texts: ListRows  # (images, top_texts), or fewer columns if there are fewer texts
    images: ListRows  # (texts, top_images), or fewer columns if there are fewer images
    text_scores: Floats  # of the same shapes
    image_scores: Floats
    hardness: Hardness
    shortage: str | None

    def to_json(self) -> dict[str, Any]:
        """The sizes of the lists and the median scores under stable names, without the lists."""
        return {
            "images": len(self.texts),
            "texts": len(self.images),
            "top_texts": self.texts.shape[1],
            "top_images": self.images.shape[1],
            "hardness": self.hardness.model_dump(),
            "shortage": self.shortage,
        }

    def columns(self) -> dict[str, Any]:
        """One row per entry: whose list it is ("image" or "text", and the row), rank from 1, negative and score."""
        parts = []
        for query, lists, scores in (("image", self.texts, self.text_scores), ("text", self.images, self.image_scores)):
            row, position = np.nonzero(lists >= 0)
            parts.append((np.full(len(row), query), row, position + 1, lists[row, position], scores[row, position]))
        names = ("query", "row", "rank", "negative", "score")
        return {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}

    def table(self) -> TextTable:
        """The median scores of positive pairs and of the ends of the lists."""
        hard = self.hardness
        medians = {
            "texts per image": (hard.positive, hard.first_text, hard.last_text),
            "images per text": (hard.positive, hard.first_image, hard.last_image),
        }
        texts, images = f"{self.texts.shape[1]:,} texts", f"{self.images.shape[1]:,} images"
        return TextTable(
            title=f"hardest {texts} of {len(self.texts):,} images, hardest {images} of {len(self.images):,} texts",
            header=["median score", "positive", "hardest negative", "last of the list"],
            rows=[[name, *(f"{score:.3f}" for score in scores)] for name, scores in medians.items()],
            caption=self.shortage or "",
        )


@torch.no_grad()
def mine_embeddings(  # noqa: PLR0913 (options, by keyword only)
    images: Array | ArrayLike,
    texts: Array | ArrayLike,
    image_groups: Groups | None = None,
    text_groups: Groups | None = None,
    *,
    captions: Sequence[str] | None = None,
    top_texts: int = TOP_TEXTS,
    top_images: int = TOP_IMAGES,
    similarity: Similarity = "cosine",
    progress: ProgressCallback | None = None,
) -> MinedNegatives:
    """Find the hardest negatives: for each image the texts of other groups with the highest scores, and vice versa.

    `captions` are the texts as strings: a text that equals, word for word, a text of the image's group is then not a
    negative either. `progress` receives the number of texts compared and their total. See `evaluate_embeddings` for
    arrays, groups and similarity. Of equal scores, the earlier row comes first.

    Examples:
        >>> mined = mine_embeddings(np.eye(3, 4), np.eye(3, 4) + 0.1 * np.eye(3, 4, 1), top_texts=1, top_images=1)
        >>> mined.texts.ravel(), mined.images.ravel()
        (array([1, 0, 1], dtype=int32), array([1, 2, 0], dtype=int32))
    """
    if not all(isinstance(top, int | np.integer) and top >= 1 for top in (top_texts, top_images)):
        raise ScoreError(f"lists of {top_texts!r} texts and {top_images!r} images; give integers from 1 on")
    embeddings = read_embeddings(images, texts, similarity)
    groups = read_groups(image_groups, text_groups, *map(len, embeddings))
    _check_negatives(*groups)
    if captions is not None:
        _check_captions(captions, len(groups[1]))
    score = similarity_score(*embeddings, similarity)
    score_pass = ScorePass(score, Exclusions(*groups, captions), top_texts, top_images, tile_size(*embeddings))
    for compared in score_pass.remaining():
        if progress is not None:
            progress(compared, score.texts)
    text_keys, image_keys = score_pass.texts_of_images.best(), score_pass.images_of_texts.best()
    if (text_keys == EMPTY).all():
        raise DataError("every image has the captions of every other; there are no negatives to mine")
    hardness = Hardness.from_keys(_positive_scores(score, *groups), text_keys, image_keys)
    lists = items_of(text_keys).astype(np.int32), items_of(image_keys).astype(np.int32)
    scores = _scores(text_keys), _scores(image_keys)
    return MinedNegatives(*lists, *scores, hardness, list_shortage(*lists, top_texts, top_images))


def _check_negatives(image_groups: GroupLabels, text_groups: GroupLabels) -> None:
    """Raise an error if an image or a text has no positive, or if there is only one group."""
    check_positives(np.arange(len(image_groups)), image_groups, np.arange(len(text_groups)), text_groups)
    if len(np.unique(image_groups)) < 2:
        raise DataError("all images and texts are of one group; there are no negatives to mine")


def _check_captions(captions: Sequence[str], texts: int) -> None:
    if len(captions) != texts:
        raise ScoreError(f"{len(captions)} captions for {texts} texts; give one caption per text")
    for row, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise ScoreError(f"caption {row}: {type(caption).__name__}; captions are strings")


def _scores(keys: Integers) -> Floats:
    return np.where(keys == EMPTY, np.float32(-np.inf), scores_of(keys))


def _positive_scores(score: Score, image_groups: GroupLabels, text_groups: GroupLabels) -> Floats:
    """The scores of some positive pairs, spread evenly over the texts."""
    scores = []
    image_rows, text_rows = map(torch.from_numpy, sample_positives(image_groups, text_groups))
    for image, text in zip(image_rows.split(_PAIRS_AT_ONCE), text_rows.split(_PAIRS_AT_ONCE), strict=True):
        scores.append(score.against(text)(image).diagonal().float().cpu())
    return np.asarray(torch.cat(scores))
