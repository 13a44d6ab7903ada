"""What the frozen base of a model computes of images and texts: once per stage, instead of once per step.

If a stage trains nothing below the heads of a model and its images are fixed, the base's vector of an image or a text
never changes. All of them are computed before the first epoch and kept in memory, up to `MAX_BYTES`; with more data,
the base is computed at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from typing_extensions import Self

from diptych.data.corpus import Corpus, Features
from diptych.features.readers import FeatureReader, InputReader
from diptych.model import Model
from diptych.models.engines.torch_engine import TEXTS_AT_ONCE, TorchEngine
from diptych.models.matcher import Matcher
from diptych.models.on_base import OnBase
from diptych.models.text_inputs import TextInputs
from diptych.progress import ProgressCallback
from diptych.text.features.bags import DistinctTexts
from diptych.training.inputs.text_features import TextFeatures
from diptych.training.recipe import Stage

MAX_BYTES = 2 * 2**30  # of the vectors of all images and texts of train and val


@dataclass(frozen=True)
class BaseEncodings:
    """Computes the encodings of a frozen base; `encoder` reads them and encodes as the model does."""

    model: Model
    base: Matcher
    encoder: Matcher
    workers: int
    progress: ProgressCallback

    @classmethod
    def for_stage(cls, model: Model, stage: Stage, items: int, workers: int, progress: ProgressCallback) -> Self | None:
        """Those of a stage that reads this many images and texts; None if they may change, or need too much memory.

        Call it after the stage has set which parameters are trainable.
        """
        base = model.matcher.base_model
        if base is None or base.embedding_dim is None or stage.crops is not None or stage.phrases is not None:
            return None
        if not _is_frozen(base) or items * base.embedding_dim * np.float32().nbytes > MAX_BYTES:
            return None
        return cls(model, base, OnBase(model.matcher), workers, progress)

    @property
    def engine(self) -> TorchEngine:
        """Encodes corpora from what `images` and `texts` return."""
        return replace(self.model.torch_engine, matcher=self.encoder)

    def images(self, corpus: Corpus, reader: InputReader) -> FeatureReader:
        """The reader of the base's vectors of the images of a corpus, which `reader` reads for the base."""
        self.base.eval()
        engine = replace(self.model.torch_engine, matcher=self.base)
        vectors, readable, _ = engine.encode_corpus_images(corpus, self.workers, self.progress, reader)
        return FeatureReader(Features([vectors.float().cpu().numpy()]), readable, reader.skipped)

    @torch.inference_mode()
    def texts(self, inputs: TextInputs) -> TextFeatures:
        """The base's vectors of all texts of a table, each distinct text computed once."""
        self.base.eval()
        assert self.base.embedding_dim is not None, "checked by for_stage"
        distinct = DistinctTexts.from_table(inputs.table)
        rows = np.empty((len(distinct.first), self.base.embedding_dim), np.float32)
        # Batches of texts of similar lengths need little padding.
        order = np.argsort(inputs.table.lengths[distinct.first], kind="stable")
        for start in range(0, len(order), TEXTS_AT_ONCE):
            some = order[start : start + TEXTS_AT_ONCE]
            tokens = inputs.tokens(distinct.first[some], self.model.device)
            rows[some] = self.base.encode_texts(tokens).float().cpu().numpy()
            self.progress(start + len(some), len(order))
        return TextFeatures(rows, distinct.inverse)


def _is_frozen(base: Matcher) -> bool:
    """Whether all weights are frozen; without any, a model would stay in training mode, with its dropout."""
    weights = [parameter.requires_grad for parameter in base.parameters()]
    return bool(weights) and not any(weights)
