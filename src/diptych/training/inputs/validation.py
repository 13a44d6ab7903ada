"""Retrieval on val, by which a stage on images and texts is measured."""

from __future__ import annotations

from dataclasses import replace

from diptych.data.corpus import Corpus
from diptych.evaluation.metrics.chance import chance_metrics
from diptych.evaluation.runs import validation_metrics
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks
from diptych.training.inputs.base_encodings import BaseEncodings
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.texts import StageTexts


class RetrievalOnVal:
    """Measures the recall of a stage's model on the val split in both directions."""

    def __init__(
        self,
        corpus: Corpus,
        images: StageImages,
        texts: StageTexts,
        base: BaseEncodings | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._engine, self._workers, self._ranks = images.model.torch_engine, images.workers, ranks
        self._val = corpus.split("val").matched()
        self._images, self._texts = images.for_encoding(self._val), texts.inputs(self._val.texts)
        if base is not None:
            self._engine = base.engine
            self._images = base.images(self._val, self._images)
            self._texts = replace(self._texts, features=base.texts(self._texts))

    @property
    def chance(self) -> dict[str, float]:
        """The recall of a random order of val."""
        return chance_metrics(self._val.image_groups, self._val.text_groups)

    def measure(self, progress: ProgressCallback) -> dict[str, float]:
        """Recall in both directions on val."""
        inputs = self._images, self._texts
        encoded = self._engine.encode_corpus(self._val, self._workers, progress, *inputs, ranks=self._ranks)
        return self._ranks.of_first(lambda: validation_metrics(encoded))


def describe_retrieval(metrics: dict[str, float]) -> str:
    """The main measures in one line."""
    return f"rsum {metrics['rsum']:.1f}  R@1 {metrics['i2t_r1']:.1f} / {metrics['t2i_r1']:.1f}"
