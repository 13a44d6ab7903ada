"""How alike the features of different images are, before training and after it (Zheng et al. 2020, dual-path, Fig. 4).

A model that tells images apart gives them features that correlate less than those of the pretrained network did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Corpus, Floats
from diptych.errors import ScoreError
from diptych.features.backbone import Backbone
from diptych.features.backbones.registry import load_backbone
from diptych.features.readers import StoreOptions, image_reader
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.models.layers.sets import present
from diptych.models.matcher import Matcher

COUNT = 100

_AT_ONCE = 16  # images whose pixels go through the backbone together

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Correlations:
    """Pearson's correlation of every two of some images, by the features before training and by the encodings.

    `before` is None where a model saw the images through no network or features that were there before it.
    """

    images: tuple[str, ...]  # their ids
    before: Matrix | None  # (images, images)
    after: Matrix  # (images, images)

    def to_json(self) -> dict[str, Any]:
        """How many images, and the mean absolute correlation of two different ones, before and after."""
        before = None if self.before is None else mean_absolute(self.before)
        return {"images": len(self.images), "before": before, "after": mean_absolute(self.after)}


def correlations(model: Model, encoded: EncodedCorpus, *, count: int = COUNT, seed: int = 0) -> Correlations:
    """Correlate the features of some images of a corpus, chosen by the seed, all of them if there are fewer.

    Before is what the backbone makes of them with the weights that training began with, also where those were
    fine-tuned since; it is read from the model's store of features where that has them. For a corpus that brings its
    own features it is those. Sets of vectors are averaged. After are the encodings.
    """
    if encoded.corpus is None:
        raise ScoreError("correlations need the corpus, not encodings read from a file")
    if count < 2 or len(encoded.images) < 2:
        raise ScoreError(f"a correlation needs two images or more, not {min(count, len(encoded.images))}")
    chosen = np.random.default_rng(seed).permutation(len(encoded.images))[:count]
    part = encoded.corpus.take(chosen, np.arange(0))
    before = features_before_training(model, part)
    after = _averaged(encoded.images[torch.from_numpy(chosen).to(encoded.images.device)])
    return Correlations(tuple(part.image_ids), None if before is None else pearson(before), pearson(after))


def pearson(vectors: Floats) -> Matrix:
    """The correlation of every two rows; a row whose values are all equal has none with any other, which is told as 0.

    >>> pearson(np.array([[1, 2, 3], [2, 4, 6], [3, 2, 1], [5, 5, 5]], np.float32)).round(6).tolist()[0]
    [1.0, 1.0, -1.0, 0.0]
    """
    centred = vectors.astype(np.float64)
    centred -= centred.mean(1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    # rounding leaves something of values that are equal
    nothing = lengths <= 1e-12 * np.abs(vectors).max(1, keepdims=True, initial=0) * vectors.shape[1]
    unit = np.where(nothing, 0, centred / np.where(nothing, 1, lengths))
    found: Matrix = (unit @ unit.T).clip(-1, 1)
    np.fill_diagonal(found, 1)
    return found


def mean_absolute(matrix: Matrix) -> float:
    """The mean absolute correlation of two different images."""
    return float(np.abs(matrix[~np.eye(len(matrix), dtype=bool)]).mean())


@torch.inference_mode()
def features_before_training(model: Model, corpus: Corpus) -> Floats | None:
    """A vector an image as it was before training, (images, size); none for a network that began at random."""
    wanted, backbone = model.matcher.image_input, model.matcher.pretrained
    everything = np.arange(len(corpus.image_ids))
    if wanted.kind == "features":
        return _averaged(torch.from_numpy(image_reader(corpus, wanted).read(everything)[0]))
    if backbone is None:
        return None
    original = _original(model.matcher, backbone).to(model.device)
    store = None if model.stores is None else StoreOptions(model.stores, model.device, workers=0)
    reader = image_reader(corpus, wanted, original, store=store)
    of_map = wanted.reads_map
    found = []
    for some in np.split(everything, range(_AT_ONCE, len(everything), _AT_ONCE)):
        values, readable = reader.read(some)
        if not readable.all():
            raise ScoreError(f"{corpus.image_ids[some[~readable][0]]}: can no longer be read; measure again without it")
        part = torch.from_numpy(values)
        found.append(_averaged(part if part.is_floating_point() else _seen(original, part.to(model.device), of_map)))
    return np.concatenate(found)


def _original(matcher: Matcher, backbone: Backbone) -> Backbone:
    """The backbone as training began with it."""
    return load_backbone(backbone.name, matcher.pretrained_weights)


def _seen(backbone: Backbone, images: Tensor, of_map: bool) -> Tensor:
    """(images, crops, 3, side, side) bytes to what would be stored of each crop, (images, crops, size)."""
    squares = images.flatten(0, 1)
    vectors: Tensor = backbone.regions(squares).mean(1) if of_map else backbone(squares)
    return vectors.view(*images.shape[:2], -1)


def _averaged(vectors: Tensor) -> Floats:
    """A vector an item: the mean of those that are there, where an item is a set."""
    if vectors.dim() == 3:
        vectors = vectors.sum(1) / present(vectors).sum(1, keepdim=True).clamp(min=1)
    return vectors.float().cpu().numpy()
