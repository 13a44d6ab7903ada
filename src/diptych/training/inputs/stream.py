"""The data of a stage that trains from shards, whose memory does not depend on the number of samples."""

from __future__ import annotations

from collections.abc import Mapping

from diptych.data.sampling.batch import PairReader
from diptych.data.sampling.stream import StreamGroups, StreamPictures, StreamSampler, StreamTexts, StreamWindow
from diptych.data.shards.corpus import StreamCorpus
from diptych.progress import ProgressCallback
from diptych.ranks import ALONE, Ranks
from diptych.training.inputs.images import StageImages
from diptych.training.inputs.pairs import Sampler
from diptych.training.inputs.texts import StageTexts
from diptych.training.inputs.validation import RetrievalOnVal, describe_retrieval
from diptych.training.recipe import Stage


class StreamData:
    """Pairs of images and texts from shards; measured by retrieval in both directions on val, which is in memory."""

    def __init__(
        self,
        corpus: StreamCorpus,
        stage: Stage,
        seed: tuple[int, int],
        images: StageImages,
        texts: StageTexts,
        ranks: Ranks = ALONE,
    ) -> None:
        stream, self._window = corpus.stream(stage.splits), StreamWindow()
        self._images = images.for_stream(StreamPictures(self._window, len(stream)))
        self._images.skipped = self._window.lost  # so that every rank knows what any of them has lost
        tokens, groups = StreamTexts(self._window, images.model.tokeniser), StreamGroups(self._window)
        self.reader = PairReader(groups, self._images, tokens)
        self.sampler: Sampler = StreamSampler(stream, self._window, stage.batches.size, seed, stage.batches.buffer)
        self._validation = RetrievalOnVal(corpus, images, texts, ranks=ranks)

    @property
    def chance(self) -> Mapping[str, float]:
        """The recall of a random order."""
        return self._validation.chance

    def why_skipped(self, image: int) -> tuple[str, str]:
        """The name of an image that a batch left out, or that of its shard if that is damaged, and the reason."""
        reason = self._images.skipped.pop(image)  # or all unreadable images of the stream would be in memory
        return reason.partition(": ")[0], reason

    def validate(self, progress: ProgressCallback) -> dict[str, float]:
        """Recall in both directions on val."""
        return self._validation.measure(progress)

    def describe(self, metrics: dict[str, float]) -> str:
        """The main measures in one line."""
        return describe_retrieval(metrics)
