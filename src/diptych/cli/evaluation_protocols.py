"""The protocols that `diptych evaluate` offers, one function each, and the choice between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.table import Table

from diptych.cli.console import print_note, print_skipped, print_unknown_texts, progress_bar
from diptych.cli.evaluation_options import ONE_MATRIX, ONE_RUN_REPORT, EvaluationOptions, Modality
from diptych.cli.evaluation_sources import SourceEncoder, is_encodings, is_matrix
from diptych.errors import RunError, ScoreError
from diptych.ranks import ALONE

if TYPE_CHECKING:
    from diptych.evaluation.metrics.scores import Score
    from diptych.evaluation.protocols.retrieval import RetrievalResult
    from diptych.evaluation.runs import Encoded
    from diptych.models.encoded_corpus import EncodedCorpus
    from diptych.models.spread_rows import SpreadRows


class JsonResult(Protocol):
    """A result that can be written as JSON."""

    def to_json(self) -> dict[str, Any]:
        """The result under stable names."""
        ...


@dataclass(frozen=True)
class Measurement:
    """A result as tables for the terminal and as JSON."""

    tables: list[Table]
    json: dict[str, Any]

    @classmethod
    def of(cls, table: Table, result: JsonResult) -> Measurement:
        """A measurement with one table."""
        return cls([table], result.to_json())

    def add(self, table: Table, name: str, result: JsonResult) -> None:
        """Add a further table, and its result under this name in the JSON."""
        self.tables.append(table)
        self.json[name] = result.to_json()


def measure(sources: list[str], options: EvaluationOptions, encoder: SourceEncoder) -> Measurement:
    """Measure the sources with the protocol that they and the options select."""
    from diptych.training.recipe_loader import trained_on_phrases

    if encoder.ranks.count > 1:
        options.check_for_ranks()
    if any(map(is_matrix, sources)):
        _check_one_process(sources[0], encoder)
        return _score_matrix(sources, options, encoder)
    options.check()
    on_phrases = [source for source in sources if trained_on_phrases(Path(source))]
    if on_phrases:
        _check_one_process(on_phrases[0], encoder)
        return _phrase_localisation(on_phrases[0], sources, options, encoder)
    if options.by_judgements:
        return _judgements(sources, options, encoder)
    if options.retriever is not None:
        return _reranking(sources, options.retriever, options.rerank_depths, encoder)
    if options.within is not None:
        measurement = _within_modality(sources, options.within, options, encoder)
    else:
        measurement = _retrieval(sources, options, encoder)
    if options.batch_statistics != "running":
        measurement.json["batch_statistics"] = options.batch_statistics
    return measurement


def _check_one_process(source: str, encoder: SourceEncoder) -> None:
    if encoder.ranks.count > 1:
        raise ScoreError(f"{source}: several processes share retrieval by encodings only; remove --devices")


def _score_matrix(sources: list[str], options: EvaluationOptions, encoder: SourceEncoder) -> Measurement:
    """Retrieval by a saved score matrix."""
    from diptych.evaluation.runs import evaluate_matrix
    from diptych.report.tables.evaluation import retrieval_table

    options.check_for_matrix()
    if len(sources) > 1 or encoder.corpus is None:
        raise ScoreError(ONE_MATRIX)
    if options.by_judgements:
        return _judgements(sources, options, encoder)
    matched = encoder.corpus.matched()
    result = evaluate_matrix(
        Path(sources[0]),
        matched.image_groups,
        matched.text_groups,
        folds=options.folds,
        gallery=options.gallery,
        average_precision=options.average_precision or None,
    )
    return Measurement.of(retrieval_table(result), result)


def _judgements(sources: list[str], options: EvaluationOptions, encoder: SourceEncoder) -> Measurement:
    """What people judged: further positives, or grades."""
    from diptych.cli.evaluation_judgements import measure_judgements

    return measure_judgements(sources, options, encoder)


def _phrase_localisation(
    run: str, sources: list[str], options: EvaluationOptions, encoder: SourceEncoder
) -> Measurement:
    """How well a run that was trained on phrases localises them."""
    from diptych.data.phrases import find_mentions
    from diptych.evaluation.localisation.evaluate_phrases import evaluate_phrases
    from diptych.report.run_report import write_phrase_report
    from diptych.report.tables.evaluation import phrase_table

    description = f"{run}: was trained on phrases and is evaluated by phrase localisation"
    options.allow_only(("--report",), description)
    if len(sources) > 1 or encoder.corpus is None:
        raise ScoreError(f"{description}; name one run and the corpus")
    trained = encoder.open(run)
    with progress_bar(f"localising phrases of {options.split} with {Path(run).name}") as progress:
        result = evaluate_phrases(trained, encoder.corpus, options.split, workers=encoder.workers, progress=progress)
    print_skipped(result.skipped)
    print_unknown_texts(trained, find_mentions(encoder.corpus).phrases)
    if options.report:
        print_note(f"wrote {write_phrase_report(Path(run), result, encoder.corpus, options.split)}")
    return Measurement.of(phrase_table(result), result)


def _reranking(sources: list[str], retriever: str, depths: Sequence[int | None], encoder: SourceEncoder) -> Measurement:
    """Retrieval by a fast run, whose first answers are re-ranked by the sources."""
    from diptych.evaluation.protocols.rerank import check_retriever, rerank
    from diptych.report.tables.evaluation import reranking_table

    retrieved = encoder.encode(retriever)
    try:
        check_retriever(retrieved)
    except ScoreError as reason:
        raise ScoreError(f"{retriever}: {reason}") from None
    encoded = [encoder.encode(source) for source in sources]
    finite_depths = [depth for depth in depths if depth is not None]
    with progress_bar("reranking") as progress:
        result = rerank(encoded, retrieved, finite_depths, all_pairs=None in depths, progress=progress)
    return Measurement.of(reranking_table(result), result)


def _within_modality(
    sources: list[str], modality: Modality, options: EvaluationOptions, encoder: SourceEncoder
) -> Measurement:
    """Retrieval of texts by texts, or of images by images."""
    from diptych.evaluation.protocols.retrieval import gallery_subset
    from diptych.evaluation.protocols.within_modality import evaluate_within_modality
    from diptych.report.tables.evaluation import within_modality_table

    if options.gallery is not None:
        if encoder.corpus is None or any(map(is_encodings, sources)):
            raise ScoreError("--within: --gallery selects images before they are encoded; name runs and the corpus")
        encoder = replace(encoder, corpus=gallery_subset(encoder.corpus.matched(), options.gallery))
    encoded = [encoder.encode(source, options.batch_statistics) for source in sources]
    result = evaluate_within_modality(encoded, modality)
    return Measurement.of(within_modality_table(result), result)


def _retrieval(sources: list[str], options: EvaluationOptions, encoder: SourceEncoder) -> Measurement:
    """Retrieval between images and texts; with several ranks, the first one measures what needs all scores."""
    if options.report and (len(sources) > 1 or encoder.corpus is None):
        raise ScoreError(ONE_RUN_REPORT)
    if encoder.ranks.count == 1:
        encoded = [encoder.encode(source, options.batch_statistics) for source in sources]
        return _measure_retrieval(encoded, sources, options, encoder)
    spread = [encoder.encode_spread(source) for source in sources]
    if not (options.report or options.cross_retrieval or options.score_overlap):
        return _measure_on_ranks(spread, sources, options, encoder)
    encoded = [each.on_first() for each in spread]
    ranks, alone = encoder.ranks, replace(encoder, ranks=ALONE)
    return ranks.together(
        lambda: _measure_retrieval(encoded, sources, options, alone) if ranks.is_first else Measurement([], {})
    )


def _measure_on_ranks(
    spread: Sequence[EncodedCorpus[SpreadRows]],
    sources: list[str],
    options: EvaluationOptions,
    encoder: SourceEncoder,
) -> Measurement:
    """Retrieval by encodings that stay spread over the ranks."""
    from diptych.evaluation.runs import evaluate_encoded
    from diptych.report.tables.evaluation import retrieval_table

    with progress_bar("comparing") as progress:
        result = evaluate_encoded(
            spread,
            folds=options.folds,
            gallery=options.gallery,
            average_precision=options.average_precision or None,
            resume=options.resume,
            progress=progress,
        )
    measurement = Measurement.of(retrieval_table(result), result)
    if len(spread) == 1:
        _add_baselines(measurement, sources[0], spread[0], result, options, encoder)
    return measurement


def _measure_retrieval(
    encoded: Sequence[EncodedCorpus], sources: list[str], options: EvaluationOptions, encoder: SourceEncoder
) -> Measurement:
    """Retrieval by encodings, with the analyses of its scores."""
    from diptych.evaluation.analyses.cross_retrieval import cross_retrieval
    from diptych.evaluation.analyses.score_overlap import score_overlap
    from diptych.evaluation.runs import cached_score, ensemble_score, evaluate_encoded
    from diptych.report.tables.evaluation import cross_retrieval_table, overlap_table, retrieval_table

    groups = encoded[0].image_groups, encoded[0].text_groups
    score, resume = ensemble_score(encoded), options.resume
    if options.phrase_run is not None:
        score, resume = _score_with_phrases(encoded, options.phrase_run, options, encoder), None
    elif options.report or options.cross_retrieval or options.score_overlap:
        score, resume = cached_score(encoded), None
    with progress_bar("comparing") as progress:
        result = evaluate_encoded(
            encoded,
            folds=options.folds,
            gallery=options.gallery,
            average_precision=options.average_precision or None,
            score=score,
            resume=resume,
            progress=progress,
        )
    measurement = Measurement.of(retrieval_table(result), result)
    if options.phrase_run is not None:
        phrases = {"run": options.phrase_run, "share": options.phrase_share, "from": options.phrase_source}
        measurement.json["phrases"] = phrases
    if options.report:
        print_note(f"wrote {_write_report(Path(sources[0]), encoded[0], result, score, options, encoder)}")
    if options.cross_retrieval:
        ranks = cross_retrieval(score, *groups)
        measurement.add(cross_retrieval_table(ranks), "cross_retrieval", ranks)
    if options.score_overlap:
        overlap = score_overlap(score, *groups)
        measurement.add(overlap_table(overlap), "overlap", overlap)
    if len(encoded) == 1 and options.phrase_run is None:
        _add_baselines(measurement, sources[0], encoded[0], result, options, encoder)
    return measurement


def _add_baselines(
    measurement: Measurement,
    source: str,
    encoded: Encoded,
    result: RetrievalResult,
    options: EvaluationOptions,
    encoder: SourceEncoder,
) -> None:
    """Add how a run compares with its baselines and the paper, if it does."""
    from diptych.report.baselines import compare_with_baselines, open_baselines
    from diptych.report.tables.baselines import baseline_table

    opened = open_baselines(source, encoder.device, encoder.features, print_note) if options.baselines else []
    comparison = compare_with_baselines(
        source,
        encoded,
        result,
        opened,
        gallery=options.gallery,
        workers=encoder.workers,
        progress=progress_bar,
        ranks=encoder.ranks,
    )
    if comparison is not None:
        measurement.tables.append(baseline_table(comparison, options.split))
        measurement.json.update(comparison.to_json())


def _score_with_phrases(
    encoded: Sequence[EncodedCorpus], run: str, options: EvaluationOptions, encoder: SourceEncoder
) -> Score:
    """The score of encodings, combined with that of a run trained on phrases for the phrases of each text."""
    from diptych.evaluation.protocols.sentence_phrases import (
        annotated_phrases,
        chunked_phrases,
        combined_score,
        phrase_score,
    )
    from diptych.evaluation.runs import ensemble_score
    from diptych.models.explain.localise import check_can_localise

    sentence_score = ensemble_score(encoded)
    # the corpus as encoded, without the images that could not be read
    corpus = next((each.corpus for each in encoded if each.corpus is not None), None)
    if corpus is None:
        raise ScoreError("--phrases needs a run and a corpus; files of encodings do not contain the texts")
    phrases = annotated_phrases(corpus) if options.phrase_source == "annotation" else chunked_phrases(corpus)
    print_note(f"{len(phrases.phrases):,} distinct phrases in {len(corpus.texts):,} texts")
    trained = encoder.open(run)
    try:
        check_can_localise(trained.matcher)
    except RunError as reason:
        raise RunError(f"--phrases {run}: {reason}") from None
    with progress_bar(f"encoding {Path(run).name}") as progress:
        region_score = phrase_score(trained, corpus, phrases, encoder.workers, progress)
    return combined_score(sentence_score, region_score, options.phrase_share)


def _write_report(
    run: Path,
    encoded: EncodedCorpus,
    result: RetrievalResult,
    score: Score,
    options: EvaluationOptions,
    encoder: SourceEncoder,
) -> Path:
    from diptych.report.run_report import write_report
    from diptych.report.sections.hard_negatives import hard_negatives_section

    assert encoder.whole is not None, "a run is measured on a corpus"
    negatives = hard_negatives_section(run, encoder.open(str(run)), encoder.whole)
    return write_report(
        run, encoded, result, options.split, hard_negatives=negatives, score=score, stores=encoder.features
    )
