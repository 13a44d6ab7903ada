"""Measures trained runs on test: the metrics that claims compare, and the rank of every query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych import __version__
from diptych.data.corpus import Corpus
from diptych.errors import ScoreError
from diptych.evaluation.analyses.score_overlap import score_overlap
from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
from diptych.evaluation.metrics.ranks import ranks
from diptych.evaluation.metrics.recall import metrics_from_ranks
from diptych.evaluation.metrics.scores import Score
from diptych.evaluation.protocols.seeds import SUMS
from diptych.evaluation.protocols.sentence_phrases import annotated_phrases, combined_score, phrase_score
from diptych.evaluation.protocols.within_modality import WithinModalityRanks, within_ranks, within_score
from diptych.evaluation.runs import cached_score
from diptych.machine import machine_name
from diptych.model import Model
from diptych.models.encoded_corpus import EncodedCorpus
from diptych.reproduction.planned_run import PlannedRun
from diptych.reproduction.records import QueryRanks, Record, RecordHeader, phrase_metrics, text_metrics
from diptych.training.context import best_file
from diptych.training.engine.journal import Journal
from diptych.training.recipe_loader import trained_on_phrases

SPLIT = "test"


@dataclass(frozen=True)
class Cost:
    """The CPU time of a run's own epochs, without those that it shares with others, and the pairs of an epoch."""

    seconds: float
    epochs: int
    pairs: int


@dataclass(frozen=True)
class Measurer:
    """Measures runs on the test split of a corpus; `stores` is the folder of stored features."""

    corpus: Corpus
    stores: Path
    device: str = "auto"
    workers: int = 0

    def run(self, planned: PlannedRun, folder: Path, cost: Cost) -> Record:
        """The record of a trained run."""
        model = Model.load(folder, self.device, stores=self.stores)
        if trained_on_phrases(folder):
            found = evaluate_phrases(model, self.corpus, SPLIT, workers=self.workers)
            measured = phrase_metrics(found), QueryRanks(phrases=found)
        else:
            measured = self._retrieval([self._encode(model)])
        epochs = [line["val"] for line in Journal(folder).lines() if line["event"] == "epoch"]
        metrics, queries = measured
        header = RecordHeader(
            key=planned.key,
            title=planned.title,
            diptych=__version__,
            corpus=self.corpus.digest(),
            recipe=planned.recipe.to_dict(),
            metrics=metrics,
            val=json.loads(best_file(folder).with_name("metrics.json").read_text(encoding="utf-8"))["val"],
            curve=tuple(next(val[name] for name in SUMS if name in val) for val in epochs),
            seconds=round(cost.seconds, 2),
            epochs=cost.epochs,
            pairs=cost.pairs,
            machine=machine_name(),
        )
        return Record.of(header, queries)

    def together(self, key: str, title: str, folders: Sequence[Path], phrases: Path | None, share: float) -> Record:
        """The record of runs that are measured together: the mean of their scores, with those of phrases if given."""
        encoded = [self._encode(Model.load(folder, self.device, stores=self.stores)) for folder in folders]
        if phrases is None:
            metrics, queries = self._retrieval(encoded)
        else:
            corpus = encoded[0].corpus
            assert corpus is not None, "it was encoded just now"
            model = Model.load(phrases, self.device, stores=self.stores)
            of_phrases = phrase_score(model, corpus, annotated_phrases(corpus), self.workers)
            score = combined_score(cached_score(encoded), of_phrases, share)
            metrics, queries = _cross_modal(score, encoded[0])
        header = RecordHeader(
            key=key,
            title=title,
            diptych=__version__,
            corpus=self.corpus.digest(),
            recipe={},
            metrics=metrics,
            machine=machine_name(),
        )
        return Record.of(header, queries)

    def _encode(self, model: Model) -> EncodedCorpus:
        return model.encode_corpus(self.corpus.split(SPLIT).matched(), self.workers)

    def _retrieval(self, encoded: Sequence[EncodedCorpus]) -> tuple[dict[str, float], QueryRanks]:
        score = cached_score(encoded)
        metrics, queries = _cross_modal(score, encoded[0])
        overlap = score_overlap(score, encoded[0].image_groups, encoded[0].text_groups, draws=1)
        metrics |= {"overlap": overlap.shared}
        if (within := _within_texts(encoded)) is not None:
            metrics |= text_metrics(within)
        return metrics, QueryRanks(queries.retrieval, within)


def _cross_modal(score: Score, encoded: EncodedCorpus) -> tuple[dict[str, float], QueryRanks]:
    found = ranks(score, encoded.image_groups, encoded.text_groups)
    return metrics_from_ranks(found).to_json(), QueryRanks(retrieval=found)


def _within_texts(encoded: Sequence[EncodedCorpus]) -> WithinModalityRanks | None:
    """The ranks of texts among texts; None if the model or the corpus has no such task."""
    try:
        return within_ranks(within_score(encoded, "texts"), encoded[0].text_groups)
    except ScoreError:
        return None
