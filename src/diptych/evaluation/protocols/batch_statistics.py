"""Encoding with batch normalisation by the statistics of the encoded set, instead of the running ones from training.

The image-sentence figures of the two-branch paper were made this way (its footnote 3). It cannot answer a single query:
the encoding of an image or a text depends on all others of the set.
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

    The run's matcher is not changed; that of the encodings is a copy with the statistics of the corpus.
    """
    corpus = corpus.matched()
    copy = Model.from_matcher(deepcopy(model.matcher), model.tokeniser, model.device, stores=model.stores)
    layers = [layer for layer in copy.matcher.modules() if isinstance(layer, nn.BatchNorm1d)]
    if not layers:
        name = model.matcher.settings.name
        raise ScoreError(f"a model {name!r} has no batch normalisation; use the running statistics")
    reader = copy.torch_engine.image_reader(corpus, workers, progress)
    # Each pass sets the layers whose input no longer changes. Layers behind other layers need one more pass each, so
    # repeat until a pass changes nothing: the second one, if no layer lies behind another.
    for _ in range(len(layers) + 1):
        with _record_inputs(layers) as statistics:
            encoded = copy.encode_corpus(corpus, workers, progress, reader)
        changed = [recorded.apply_to(layer) for layer, recorded in zip(layers, statistics, strict=True)]
        if not any(changed):
            break
    return encoded


class RunningStatistics:
    """The mean and the sum of squared deviations of rows that come in parts, in float64 (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = torch.zeros((), dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """Add the input of a batch normalisation: (rows, size), or (rows, size, positions)."""
        values = rows.detach().cpu().double()
        values = values.movedim(1, -1).flatten(0, -2)  # (rows, size)
        if not len(values):
            return
        mean, count = values.mean(0), self.count + len(values)
        shift = mean - self.mean
        self.squares = (
            self.squares + (values - mean).square().sum(0) + shift.square() * self.count * len(values) / count
        )
        self.mean = self.mean + shift * len(values) / count
        self.count = count

    @torch.no_grad()
    def apply_to(self, layer: nn.BatchNorm1d) -> bool:
        """Set the layer's running statistics, with the biased variance as in training; return whether they changed."""
        changed = False
        for buffer, statistic in (
            (layer.running_mean, self.mean),
            (layer.running_var, self.squares / max(1, self.count)),
        ):
            if buffer is None or not self.count:
                continue
            value = statistic.to(buffer.dtype).to(buffer.device)
            changed = changed or not torch.equal(buffer, value)
            buffer.copy_(value)
        return changed


@contextmanager
def _record_inputs(layers: list[nn.BatchNorm1d]) -> Iterator[list[RunningStatistics]]:
    """Record the statistics of the layers' inputs while the context is active."""
    statistics = [RunningStatistics() for _ in layers]
    hooks = []
    try:
        for layer, recorded in zip(layers, statistics, strict=True):
            hooks.append(layer.register_forward_pre_hook(lambda _, inputs, recorded=recorded: recorded.add(inputs[0])))
        yield statistics
    finally:
        for hook in hooks:
            hook.remove()
