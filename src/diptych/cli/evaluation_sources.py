"""The sources that `diptych evaluate` measures: runs, which encode a corpus, and files of encodings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.cli.console import print_skipped, print_unknown_texts, progress_bar
from diptych.cli.evaluation_options import BatchStatistics, TextShifts
from diptych.cli.open_data import open_data
from diptych.errors import ScoreError
from diptych.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.data.splitting import SplitRule
    from diptych.model import Model
    from diptych.models.encoded_corpus import EncodedCorpus
    from diptych.models.spread_rows import SpreadRows


def is_encodings(source: str) -> bool:
    """Whether a source is a file of encodings."""
    return source.endswith(".safetensors")


def is_matrix(source: str) -> bool:
    """Whether a source is a file with a score matrix."""
    return source.endswith(".npy")


def open_sources(
    arguments: Sequence[str], retriever: str | None, phrase_run: str | None, rule: SplitRule | None
) -> tuple[list[str], Corpus | None]:
    """The sources and the corpus, which is the last argument unless that is a file of encodings.

    The corpus has the splits that the runs were trained with.
    """
    if is_encodings(arguments[-1]):
        if rule is not None:
            raise ScoreError("files of encodings contain one split; remove --val and --test")
        return list(arguments), None
    if len(arguments) == 1:
        raise ScoreError(
            f"{arguments[0]}: name the corpus to evaluate on, such as `diptych evaluate {arguments[0]} scenes`"
        )
    sources = list(arguments[:-1])
    corpus = open_data(arguments[-1], rule, [*sources, *filter(None, (retriever, phrase_run))])
    if all(is_encodings(source) for source in [*sources, retriever or sources[0]]):
        raise ScoreError("files of encodings already contain their groups; remove the corpus")
    return sources, corpus


@dataclass(frozen=True)
class SourceEncoder:
    """Opens runs and encodes a split of the corpus with them, `corpus`; `whole` are all splits.

    `features` is the folder with stored features. `text_shifts` overrides at which positions a text CNN sees a text.
    `ranks` are the processes that share the work.
    """

    corpus: Corpus | None
    device: str
    workers: int
    features: Path
    text_shifts: TextShifts | None = None
    whole: Corpus | None = None
    ranks: Ranks = ALONE

    def open(self, run: str) -> Model:
        """Open a run."""
        from diptych.evaluation.runs import open_run

        model = open_run(run, self.device, self.features)
        if self.text_shifts is not None:
            if not model.matcher.shifts_texts:
                raise ScoreError(f"{run}: the model does not shift texts; remove --shifts")
            model.matcher.set_text_shifts(self.text_shifts)
        return model

    def encode_spread(self, source: str) -> EncodedCorpus[SpreadRows]:
        """What `encode` returns, with encodings of which each rank has a share."""
        from diptych.evaluation.runs import encode_spread

        if is_encodings(source):
            return self.encode(source).spread(self.ranks)
        corpus = self._corpus_for(source)
        model = self.ranks.first_alone(lambda: self.open(source))
        with progress_bar(f"encoding {Path(source).name}") as progress:
            encoded = encode_spread(model, corpus, self.workers, progress, self.ranks)
        print_skipped(encoded.skipped)
        print_unknown_texts(model, corpus.texts)
        return encoded

    def _corpus_for(self, source: str) -> Corpus:
        if self.corpus is None:
            raise ScoreError(f"{source}: name the corpus to evaluate the run on as the last argument")
        return self.corpus

    def encode(self, source: str, statistics: BatchStatistics = "running") -> EncodedCorpus:
        """Load the encodings of a file, or encode the corpus with a run."""
        from diptych.evaluation.protocols.batch_statistics import encode_with_batch_statistics
        from diptych.models.encoded_corpus import EncodedCorpus

        if is_encodings(source):
            if statistics == "test" or self.text_shifts is not None:
                option = "--shifts" if self.text_shifts is not None else "--batch-statistics test"
                raise ScoreError(f"{source}: is already encoded; {option} needs the run and the corpus")
            return EncodedCorpus.load(Path(source))
        corpus, model = self._corpus_for(source), self.open(source)
        with progress_bar(f"encoding {Path(source).name}") as progress:
            if statistics == "running":
                encoded = model.encode_corpus(corpus, self.workers, progress)
            else:
                try:
                    encoded = encode_with_batch_statistics(model, corpus, self.workers, progress)
                except ScoreError as reason:
                    raise ScoreError(f"{source}: {reason}") from None
        print_skipped(encoded.skipped)
        print_unknown_texts(model, corpus.texts)
        return encoded
