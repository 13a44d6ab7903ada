"""Mixed precision: towers compute in bfloat16 or float16, and all else in single precision.

Weights, encodings, scores, losses and what the optimiser sees are float32; within the towers, autocast lets products
and convolutions compute in half precision. float16 has so small a range that gradients would vanish: the loss is
multiplied by a scale, and the gradients are divided by it before they are clipped. If they overflow nevertheless, the
step is skipped and the scale halves; after 2,000 steps without that it doubles.

Reference: Micikevicius et al. 2018, Mixed Precision Training, sections 3.1 and 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from diptych.models.layers.precision import at_least_float32
from diptych.models.matcher import EncodedBatch
from diptych.models.tower import Tokens
from diptych.training.needs.need import PairScorer

Precision = Literal["float32", "bfloat16", "float16"]

_CPU = torch.device("cpu")
SMALLEST_SCALE = 2.0**-14  # below it, the gradients do not overflow because of the scale


class BatchEncoder(PairScorer, Protocol):
    """What encodes and scores training batches: a matcher, or one whose towers compute in another precision."""

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images, one row each."""
        ...

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts, one row each."""
        ...

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a training batch: text k belongs to image `image_of[k]`."""
        ...


def in_precision(encoder: BatchEncoder, precision: Precision, device: torch.device) -> BatchEncoder:
    """An encoder whose towers compute in this precision."""
    return encoder if precision == "float32" else _HalfEncoder(encoder, getattr(torch, precision), device.type)


@dataclass(frozen=True)
class _HalfEncoder:
    """Encodes in half precision to single precision, and scores as the encoder itself does.

    Each call has an autocast of its own: the casts of weights that one keeps would not carry gradients if the first
    call was made without them.
    """

    encoder: BatchEncoder
    dtype: torch.dtype
    device: str

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images in half precision."""
        with torch.autocast(self.device, self.dtype):
            encoded = self.encoder.encode_images(images)
        return at_least_float32(encoded)

    def encode_texts(self, tokens: Tokens) -> Tensor:
        """Encode texts in half precision."""
        with torch.autocast(self.device, self.dtype):
            encoded = self.encoder.encode_texts(tokens)
        return at_least_float32(encoded)

    def encode_batch(self, images: Tensor, tokens: Tokens, image_of: Tensor) -> EncodedBatch:
        """Encode a training batch in half precision."""
        with torch.autocast(self.device, self.dtype):
            encoded = self.encoder.encode_batch(images, tokens, image_of)
        terms = {name: at_least_float32(term) for name, term in encoded.terms.items()}
        features = encoded.features
        if features is not None:
            features = at_least_float32(features[0]), at_least_float32(features[1])
        return EncodedBatch(at_least_float32(encoded.images), at_least_float32(encoded.texts), terms, features)

    def score(self, images: Tensor, texts: Tensor) -> Tensor:
        """The encoder's score, in the precision of the encodings."""
        return self.encoder.score(images, texts)

    def score_pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """The encoder's score of each pair, in the precision of the encodings."""
        return self.encoder.score_pairs(images, texts)


class LossScaler:
    """The scale of the loss in float16; in another precision it is 1, and no step is skipped."""

    def __init__(self, precision: Precision = "float32", device: torch.device = _CPU) -> None:
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        self.has_overflowed = False  # whether the last step was skipped

    @property
    def value(self) -> float:
        """The scale of the next loss."""
        return self._scaler.get_scale()

    def backward(self, loss: Tensor) -> Tensor:
        """Compute gradients of the scaled loss, and return the loss without its graph."""
        self._scaler.scale(loss).backward()
        return loss.detach()

    def unscale(self, optimiser: Optimizer) -> bool:
        """Divide the gradients by the scale and update the scale; returns whether they are all finite.

        If they are not, the optimiser must not use them.
        """
        # Not by `GradScaler.step`: if it skips the first step, torch's fused SGD goes on with an undefined momentum.
        scale = self.value
        self._scaler.unscale_(optimiser)
        self._scaler.update()
        self.has_overflowed = self.value < scale
        return not self.has_overflowed

    def state(self) -> dict[str, Any]:
        """What a snapshot must keep to resume; empty if nothing is scaled."""
        return self._scaler.state_dict()

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume with the state of a snapshot."""
        if state:
            self._scaler.load_state_dict(state)


def precision_remark(precision: Precision, device: torch.device) -> str | None:
    """What a user should know of training in this precision on this device, if anything."""
    if precision == "float32":
        return None
    remark = f"precision = {precision!r}: the towers compute in {precision}, all else in float32"
    if device.type == "cpu" and precision == "float16":
        return f"{remark}; CPUs are slow in float16: use 'bfloat16' or 'float32'"
    if device.type == "cpu":
        return f"{remark}; CPUs without instructions for bfloat16 are slower in it"
    if device.type == "cuda" and precision == "bfloat16" and not torch.cuda.is_bf16_supported(False):
        return f"{remark}; this GPU only emulates bfloat16, which is slow: use 'float16'"
    return remark
