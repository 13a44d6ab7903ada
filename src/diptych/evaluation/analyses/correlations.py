"""How much the features of different images correlate, before and after training.

A model that tells images apart gives them features that correlate less than those of the pretrained network do
(Zheng et al. 2020, dual-path, Fig. 4).
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

COUNT = 100

_IMAGES_AT_ONCE = 16  # images that go through the backbone together

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Correlations:
    """Pearson's correlation of every two of some images, by the features before training and by the encodings.

    `before` is None if there was neither a pretrained network nor a feature file before training.
    """

    images: tuple[str, ...]  # their ids
    before: Matrix | None  # (images, images)
    after: Matrix  # (images, images)

    def to_json(self) -> dict[str, Any]:
        """The number of images, and the mean absolute correlation of different images, before and after."""
        before = None if self.before is None else mean_absolute(self.before)
        return {"images": len(self.images), "before": before, "after": mean_absolute(self.after)}


def correlations(model: Model, encoded: EncodedCorpus, *, count: int = COUNT, seed: int = 0) -> Correlations:
    """Correlate the features of `count` images drawn from a corpus, or of all if there are fewer.

    "Before" is the output of the backbone with the weights that training started from, even if it was fine-tuned since;
    it is read from the model's feature store if it is there. For a corpus with features of its own, it is those.
    "After" are the encodings. Sets of vectors are averaged.
    """
    if encoded.corpus is None:
        raise ScoreError("correlations need the corpus, not encodings read from a file")
    if count < 2 or len(encoded.images) < 2:
        raise ScoreError(f"a correlation needs at least two images, not {min(count, len(encoded.images))}")
    chosen = np.random.default_rng(seed).permutation(len(encoded.images))[:count]
    part = encoded.corpus.take(chosen, np.arange(0))
    before = features_before_training(model, part)
    after = _set_means(encoded.images[torch.from_numpy(chosen).to(encoded.images.device)])
    return Correlations(tuple(part.image_ids), None if before is None else pearson(before), pearson(after))


def pearson(vectors: Floats) -> Matrix:
    """The correlation of every two rows; a row of equal values has correlation 0 with every other.

    >>> pearson(np.array([[1, 2, 3], [2, 4, 6], [3, 2, 1], [5, 5, 5]], np.float32)).round(6).tolist()[0]
    [1.0, 1.0, -1.0, 0.0]
    """
    centred = vectors.astype(np.float64)
    centred -= centred.mean(1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    # centring leaves rounding errors of equal values
    constant = lengths <= 1e-12 * np.abs(vectors).max(1, keepdims=True, initial=0) * vectors.shape[1]
    unit = np.where(constant, 0, centred / np.where(constant, 1, lengths))
    matrix: Matrix = (unit @ unit.T).clip(-1, 1)
    np.fill_diagonal(matrix, 1)
    return matrix


def mean_absolute(matrix: Matrix) -> float:
    """The mean absolute correlation of different images.

    >>> mean_absolute(np.array([[1.0, -0.5], [-0.5, 1.0]]))
    0.5
    """
    return float(np.abs(matrix[~np.eye(len(matrix), dtype=bool)]).mean())


@torch.inference_mode()
def features_before_training(model: Model, corpus: Corpus) -> Floats | None:
    """One vector per image as it was before training, (images, size); None for a network model from scratch."""
    image_input, backbone = model.matcher.image_input, model.matcher.pretrained
    rows = np.arange(len(corpus.image_ids))
    if image_input.kind == "features":
        return _set_means(torch.from_numpy(image_reader(corpus, image_input).read(rows)[0]))
    if backbone is None:
        return None
    original = load_backbone(backbone.name, model.matcher.pretrained_weights).to(model.device)
    store = None if model.stores is None else StoreOptions(model.stores, model.device, workers=0)
    reader = image_reader(corpus, image_input, original, store=store)
    features = []
    for chunk in np.split(rows, range(_IMAGES_AT_ONCE, len(rows), _IMAGES_AT_ONCE)):
        values, readable = reader.read(chunk)
        if not readable.all():
            image = corpus.image_ids[chunk[~readable][0]]
            raise ScoreError(f"{image}: can no longer be read; measure again without it")
        part = torch.from_numpy(values)
        if not part.is_floating_point():  # pixels, not stored features
            part = _crop_features(original, part.to(model.device), image_input.reads_map)
        features.append(_set_means(part))
    return np.concatenate(features)


def _crop_features(backbone: Backbone, images: Tensor, reads_map: bool) -> Tensor:
    """(images, crops, 3, side, side) bytes to what a store would hold of each crop, (images, crops, size)."""
    crops = images.flatten(0, 1)
    vectors: Tensor = backbone.regions(crops).mean(1) if reads_map else backbone(crops)
    return vectors.view(*images.shape[:2], -1)


def _set_means(vectors: Tensor) -> Floats:
    """One vector per item: the mean of the vectors that are not padding, if an item is a set."""
    if vectors.dim() == 3:
        vectors = vectors.sum(1) / present(vectors).sum(1, keepdim=True).clamp(min=1)
    return vectors.float().cpu().numpy()
