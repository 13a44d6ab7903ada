"""The networks of open_clip's pairs: one for images and one for texts, without what else a model of open_clip has.

Projections that are bare parameters in open_clip are linear layers here, so that they are trained like other layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from diptych.errors import DiptychError
from diptych.models.pretrained_pairs.open_clip_names import INSTALL
from diptych.optional import import_optional, quiet, why_broken

_TEXT_PARTS = ("token_embedding.", "positional_embedding", "transformer.", "ln_final.", "text_projection")


class OpenClipImages(nn.Module):
    """An image network, and the projection that it ends with, if any."""

    def __init__(self, visual: Any) -> None:
        super().__init__()
        self.visual = visual
        self.project: nn.Module = nn.Identity()
        if isinstance(getattr(visual, "proj", None), nn.Parameter):
            self.project = _linear(visual.proj)
            visual.proj = None

    def forward(self, values: Tensor) -> Tensor:
        """Normalised pixels, (images, 3, side, side), to (images, size)."""
        vectors: Tensor = self.project(_vector(self.visual(values)))
        return vectors


class OpenClipTexts(nn.Module):
    """A text network."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        projection = network.text_projection
        if isinstance(projection, nn.Parameter):
            network.text_projection = None
            del network.text_projection
            network.text_projection = _linear(projection)
        has_end = network.pool_type == "argmax" and network.cls_emb is None
        self._reads_any_length = has_end and network.attn_mask is not None

    def forward(self, ids: Tensor) -> Tensor:
        """Ids, (texts, length), to (texts, size); the padding is 0, or what the network was trained with."""
        if not self._reads_any_length:
            return _vector(self.network(ids))
        # A causal network whose vector is that of the last token needs no places behind it; open_clip reads all.
        network, length = self.network, ids.shape[1]
        states = network.token_embedding(ids) + network.positional_embedding[:length]
        states = network.ln_final(network.transformer(states, attn_mask=network.attn_mask[:length, :length]))
        ends = states[torch.arange(ids.shape[0], device=ids.device), ids.argmax(1)]
        vectors: Tensor = ends if network.text_projection is None else network.text_projection(ends)
        return vectors


def build(config: Mapping[str, Any]) -> tuple[OpenClipImages, OpenClipTexts]:
    """Both networks with random weights."""
    library = import_optional("open_clip", INSTALL, instead="a folder in transformers' layout")
    given = deepcopy(dict(config))
    try:
        with quiet():
            whole = library.CustomTextCLIP(**given)
            return OpenClipImages(whole.visual), OpenClipTexts(whole.text)
    except Exception as reason:  # of an unknown key, or of a value that the network cannot take
        raise DiptychError(f"open_clip cannot build the networks of a pair {why_broken(reason)}") from None


def network_weights(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The weights of a model of open_clip by part: `image`, `text` and `score`."""
    parts: dict[str, dict[str, Tensor]] = {"image": {}, "text": {}, "score": {}}
    for name, tensor in tensors.items():
        if name == "visual.proj":
            parts["image"]["project.weight"] = tensor.t()
        elif name.startswith("visual."):
            parts["image"][name] = tensor
        elif name in ("logit_scale", "logit_bias"):
            parts["score"][name] = tensor
        elif name.startswith("text.") or name.startswith(_TEXT_PARTS):
            inner = name.removeprefix("text.")
            if inner == "text_projection":
                inner, tensor = "text_projection.weight", tensor.t()  # noqa: PLW2901
            parts["text"][f"network.{inner}"] = tensor
        elif not name.startswith("text_decoder.") and name not in ("input_resolution", "context_length", "vocab_size"):
            parts["image"][name] = tensor  # which is refused as a weight that the network does not have
    return parts


def _vector(output: Any) -> Tensor:
    vector: Tensor = output[0] if isinstance(output, tuple) else output  # some networks return (vector, tokens)
    return vector


def _linear(projection: Tensor) -> nn.Linear:
    inputs, outputs = projection.shape
    return nn.Linear(inputs, outputs, bias=False, device=projection.device)
