"""Dual-path: one CNN per side, over pixels and over words, two layers after each, and the cosine as the score.

    f = fc(ReLU(BN(fc(CNN(x))))),  s(i, t) = f_i . f_t / (|f_i| |f_t|)        (Zheng et al. 2020, Eq. 1 and 3, Fig. 2)

Reference: Dual-Path Convolutional Image-Text Embeddings with Instance Loss, ACM TOMM 2020, sections III and VI-B.
Needs: images for any image tower, in the paper `views` (the photo and its mirror image); texts as tokens.
When to use it: with `instance`, which makes every group a class; for people and things that are seen several times.
Relation to others: VSE has one linear map per side and a GRU. A classifier reads `f` before it is normalised, with
dropout. `heads = "public"` are those of the authors' code: batch norm and ReLU also after the last layer, and one layer
on the text side; in evaluation the features are those before the last ReLU.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from diptych.errors import RecipeError
from diptych.models.layers.batch_norm import normed
from diptych.models.layers.branch import linear
from diptych.models.layers.precision import normalize
from diptych.models.matcher import EncodedBatch, TextShifts
from diptych.models.matchers.two_towers import TwoTowers, TwoTowerSettings
from diptych.models.tower import NamedImageTower, NamedTextTower, Tokens
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.text.cnn import TextCNN, TextCNNSettings
from diptych.settings import Count, Number


class DualPathSettings(TwoTowerSettings):
    """Towers and the sizes of the layers after them; the defaults are the paper's.

    `dropout` applies to what a classifier reads in training. `shifts = "mean"` encodes a text at each position that it
    can take in the text CNN and averages; it costs as many passes.
    """

    name: Literal["dual_path"] = "dual_path"
    image: NamedImageTower = ViewsSettings()
    text: NamedTextTower = TextCNNSettings()
    hidden: Count = 2048
    joint: Count = 2048
    heads: Literal["paper", "public"] = "paper"
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.75
    shifts: TextShifts = "one"

    def build(self) -> DualPath:
        """A matcher with random weights."""
        return DualPath(self)


class Head(nn.Module):
    """Maps vectors (vectors, inputs) to features (vectors, the last of `sizes`); batch norm and ReLU between layers.

    With `norm_last`, batch norm follows the last layer, too.
    """

    def __init__(self, inputs: int, sizes: tuple[int, ...], norm_last: bool) -> None:
        super().__init__()
        outputs = (inputs, *sizes)
        followed = [norm_last or number < len(sizes) - 1 for number in range(len(sizes))]
        # A bias before a batch norm would have no effect.
        self.layers = nn.ModuleList(
            linear(outputs[number], size, bias=not followed[number]) for number, size in enumerate(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for size, norm in zip(sizes, followed, strict=True) if norm)

    def forward(self, vectors: Tensor) -> Tensor:
        """The features of vectors."""
        for number, layer in enumerate(self.layers):
            vectors = layer(relu(vectors) if number else vectors)
            if number < len(self.norms):
                norm = self.norms[number]
                assert isinstance(norm, nn.BatchNorm1d)
                vectors = normed(norm, vectors)
        return vectors


class DualPath(TwoTowers):
    """See the module docstring. Its parts are `image`, `image_head`, `text` and `text_head`."""

    def __init__(self, settings: DualPathSettings) -> None:
        super().__init__(settings)
        self.settings: DualPathSettings = settings
        public = settings.heads == "public"
        layers = (settings.hidden, settings.joint)
        self.image_head = Head(self.image.size, layers, norm_last=public)
        self.text_head = Head(self.text.size, layers[1:] if public else layers, norm_last=public)
        self.set_text_shifts(settings.shifts)

    def set_text_shifts(self, shifts: TextShifts) -> None:
        """Choose how texts are encoded from now on; a run can be measured both ways, however it was trained."""
        if shifts == "mean" and not isinstance(self.text, TextCNN):
            raise RecipeError("model.shifts = 'mean': only the text tower 'cnn' has positions to shift a text to")
        self.settings = self.settings.model_copy(update={"shifts": shifts})

    @property
    def embedding_dim(self) -> int:
        """The size of the joint space; an image's views become one vector in it."""
        return self.settings.joint

    @property
    def reads_views(self) -> bool:
        """Always: several views become one vector."""
        return True

    @property
    def shifts_texts(self) -> bool:
        """Always; a text tower other than `cnn` is refused when it is asked for."""
        return True

    @property
    def offers_unnormalised(self) -> bool:
        """Always: they are the features that a classifier reads, without dropout."""
        return True

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images as unit vectors: (images, joint)."""
        return normalize(self.unnormalised_images(images), dim=1)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts as unit vectors: (texts, joint)."""
        return normalize(self.unnormalised_texts(tokens), dim=1)

    def unnormalised_images(self, images: Tensor) -> Tensor:
        """The features of images: (images, joint)."""
        return self._activated(self._image_features(images))

    def unnormalised_texts(self, tokens: Tokens) -> Tensor:
        """The features of texts: (texts, joint)."""
        return self._activated(self._text_features(tokens))

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a training batch, with the features for a classifier."""
        of_images, of_texts = self.unnormalised_images(images), self.unnormalised_texts(tokens)
        share, training = self.settings.dropout, self.training
        read = dropout(of_images, share, training), dropout(of_texts, share, training)
        return EncodedBatch(normalize(of_images, dim=1), normalize(of_texts, dim=1), features=read)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine: (images, texts)."""
        return torch.mm(images, texts.t())

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same score for image k and text k: (pairs,)."""
        return (images * texts).sum(1)

    def _image_features(self, images: Tensor) -> Tensor:
        """Features of images; of several views, a random one in training and the mean in evaluation."""
        vectors: Tensor = self.image(images)  # (images, size), or (images, views, size)
        if vectors.dim() == 3 and self.training:
            drawn = torch.randint(vectors.shape[1], (len(vectors),), device=vectors.device)
            vectors = vectors[torch.arange(len(vectors), device=vectors.device), drawn]
        features: Tensor = self.image_head(vectors.flatten(0, -2))
        return features.view(*vectors.shape[:-1], -1).mean(1) if vectors.dim() == 3 else features

    def _text_features(self, tokens: Tokens) -> Tensor:
        """Features of texts at one position each, or the mean over all positions."""
        if self.training or self.settings.shifts == "one":
            features: Tensor = self.text_head(self.text(tokens))
            return features
        assert isinstance(self.text, TextCNN)
        vectors, owner = self.text.encode_at_all_positions(tokens)  # (placements, size), (placements,)
        each: Tensor = self.text_head(vectors)
        sums = each.new_zeros(len(tokens.ids), each.shape[1]).index_add_(0, owner, each)
        return sums / torch.bincount(owner, minlength=len(sums))[:, None]

    def _activated(self, features: Tensor) -> Tensor:
        """With the public heads, training reads features after a last ReLU, and evaluation those before it."""
        return relu(features) if self.training and self.settings.heads == "public" else features
