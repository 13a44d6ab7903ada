"""Encoding with batch normalisation by the statistics of what is encoded, instead of those learned in training.

The two-branch paper's image-sentence figures were made so (its footnote 3). It is no way to answer a single query: what
an image or a text is encoded as depends on all the others of the set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn

from diptych.data.corpus import Corpus
from diptych.errors import ScoreError
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.progress import ProgressCallback


def encode_with_batch_statistics(
    model: Model, corpus: Corpus, workers: int = 2, progress: ProgressCallback | None = None
) -> EncodedCorpus:
    """Encode a corpus as if all its images, and all its texts, were one batch for every batch normalisation.

    The run's own matcher is not changed; that of the encodings is a copy with the statistics of the corpus.
    """
    corpus = corpus.matched()
    copy = Model.from_matcher(deepcopy(model.matcher), model.vocabulary, model.device, stores=model.stores)
    layers = [layer for layer in copy.matcher.modules() if isinstance(layer, nn.BatchNorm1d)]
    if not layers:
        name = model.matcher.settings.name
        raise ScoreError(
            f"a model {name!r} has no batch normalisation; use the running statistics, there are no others"
        )
    reader = copy.torch_engine.image_reader(corpus, workers, progress)
    # A pass settles the layers whose input was settled before it: a pass more for each layer that lies behind another,
    # until one finds nothing left to change, as the second does where no layer lies behind another.
    for _ in range(len(layers) + 1):
        with _recorded(layers) as records:
            encoded = copy.encode_corpus(corpus, workers, progress, reader)
        changed = [record.settle(layer) for layer, record in zip(layers, records, strict=True)]
        if not any(changed):
            break
    return encoded


class _Record:
    """The mean and the sum of squared deviations of rows that come in parts, in float64 (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = torch.zeros((), dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """Take in the input of a batch normalisation: (rows, size), or (rows, size, places)."""
        values = rows.detach().cpu().double()
        values = values.movedim(1, -1).flatten(0, -2)  # (rows, size)
        if not len(values):
            return
        mean, count = values.mean(0), self.count + len(values)
        apart = mean - self.mean
        self.squares = (
            self.squares + (values - mean).square().sum(0) + apart.square() * self.count * len(values) / count
        )
        self.mean = self.mean + apart * len(values) / count
        self.count = count

    @torch.no_grad()
    def settle(self, layer: nn.BatchNorm1d) -> bool:
        """Give a layer what was recorded, the variance as a batch in training has it; whether that changed anything."""
        changed = False
        for kept, value in ((layer.running_mean, self.mean), (layer.running_var, self.squares / max(1, self.count))):
            if kept is None or not self.count:
                continue
            value = value.to(kept.dtype).to(kept.device)
            changed = changed or not torch.equal(kept, value)
            kept.copy_(value)
        return changed


@contextmanager
def _recorded(layers: list[nn.BatchNorm1d]) -> Iterator[list[_Record]]:
    """Record what goes into the layers, as long as it lasts."""
    records = [_Record() for _ in layers]
    hooks = []
    try:
        for layer, record in zip(layers, records, strict=True):
            hooks.append(layer.register_forward_pre_hook(lambda _, given, record=record: record.add(given[0])))
        yield records
    finally:
        for hook in hooks:
            hook.remove()
