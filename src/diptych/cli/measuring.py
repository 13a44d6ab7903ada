"""What `diptych evaluate` measures: what was asked for, whether it goes together, and a function for each way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rich.table import Table

from diptych.cli.console import print_note, print_skipped, print_unknown_texts, progress_bar
from diptych.errors import RunError, ScoreError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus, Integers
    from diptych.evaluation.metrics.ranks import Score
    from diptych.evaluation.protocols.retrieval import RetrievalResult
    from diptych.models.encodings import Encoded
    from diptych.models.trained import Trained

Modality = Literal["texts", "images"]
PhraseSource = Literal["annotation", "chunker"]
Statistics = Literal["running", "test"]
Shifts = Literal["one", "mean"]

SHARE = 0.2  # of the phrases in a joined score: the two-branch paper's alpha

# What is told of a way of measuring that does not go with every option, and the options that it does go with.
_MATRIX = (
    "a score matrix is measured alone, with the corpus it was made from: SCORES.npy DATA",
    ("--folds", "--gallery", "--map"),
)
_TOGETHER: dict[str, tuple[str, tuple[str, ...]]] = {
    "--rerank": ("--rerank measures one gallery", ()),
    "--within": ("--within measures one gallery of one modality", ("--gallery", "--batch-statistics")),
    "--phrases": (
        "--phrases joins two scores",
        ("--folds", "--gallery", "--cross", "--overlap", "--map", "--batch-statistics"),
    ),
    "--report": ("--report needs one run and a corpus, in one gallery", ("--cross", "--overlap", "--map")),
    "--cross": ("--cross measures one gallery", ("--report", "--phrases", "--overlap", "--map", "--batch-statistics")),
    "--overlap": (
        "--overlap measures one gallery",
        ("--report", "--phrases", "--cross", "--map", "--batch-statistics"),
    ),
}


@dataclass(frozen=True)
class Asked:
    """The options of `diptych evaluate` that say what to measure."""

    data: str
    split: str
    folds: int
    gallery: int | None
    lengths: list[int | None]
    lister: str | None
    cross: bool
    overlap: bool
    average_precision: bool
    within: Modality | None
    phrases: str | None
    share: float
    phrases_from: PhraseSource
    batch_statistics: Statistics
    report: bool

    @property
    def options(self) -> list[str]:
        """The options that were given, of those that do not always go together."""
        given = {
            "--rerank": self.lister is not None,
            "--within": self.within is not None,
            "--phrases": self.phrases is not None,
            "--report": self.report,
            "--cross": self.cross,
            "--overlap": self.overlap,
            "--map": self.average_precision,
            "--folds": self.folds > 1,
            "--gallery": self.gallery is not None,
            "--batch-statistics": self.batch_statistics != "running",
        }
        return [option for option, there in given.items() if there]

    def precise(self, image_groups: Integers) -> bool:
        """Whether mAP is measured too: it was asked for, or a text has more than one right image."""
        from diptych.evaluation.metrics.average_precision import average_precision_applies

        return self.average_precision or average_precision_applies(image_groups)

    def check(self) -> None:
        """Refuse options that do not go together."""
        for option in self.options:
            if option in _TOGETHER:
                why, others = _TOGETHER[option]
                self.check_alone(why, (option, *others))

    def check_alone(self, why: str, allowed: Sequence[str] = ()) -> None:
        """Refuse all options but these."""
        if wrong := [option for option in self.options if option not in allowed]:
            raise ScoreError(f"{why}; leave {', '.join(wrong)} out")


@dataclass(frozen=True)
class EncodeOptions:
    """What runs are encoded with: the corpus where there is one, the device, the threads, the folder of stores.

    `shifts` is where a text CNN puts texts, if not as the run has it.
    """

    corpus: Corpus | None
    device: str
    workers: int
    features: Path
    shifts: Shifts | None = None

    def open(self, run: str) -> Trained:
        """A run, ready to encode."""
        from diptych.models.trained import Trained

        trained = Trained.open(run, self.device, stores=self.features)
        if self.shifts is not None:
            if not trained.matcher.shifts_texts:
                raise ScoreError(f"{run}: its model has no places to shift a text to; leave --shifts out")
            trained.matcher.set_text_shifts(self.shifts)
        return trained

    def encode(self, source: str, statistics: Statistics = "running") -> Encoded:
        """The encodings of a file, or of the corpus by a run, with the batch statistics that are asked for."""
        from diptych.evaluation.protocols.batch_statistics import encode_with_batch_statistics
        from diptych.models.encodings import Encoded

        if source.endswith(".safetensors"):
            if statistics == "test" or self.shifts is not None:
                option = "--shifts" if self.shifts is not None else "--batch-statistics test"
                raise ScoreError(f"{source}: is encoded already; {option} needs the run and the corpus")
            return Encoded.load(Path(source))
        if self.corpus is None:
            raise ScoreError(f"{source}: name the corpus to measure the run on as the last argument")
        trained = self.open(source)
        with progress_bar(f"encoding {Path(source).name}") as progress:
            if statistics == "running":
                encoded = trained.encode(self.corpus, self.workers, progress)
            else:
                try:
                    encoded = encode_with_batch_statistics(trained, self.corpus, self.workers, progress)
                except ScoreError as reason:
                    raise ScoreError(f"{source}: {reason}") from None
        print_skipped(encoded.skipped)
        print_unknown_texts(trained, self.corpus.texts)
        return encoded


class JsonResult(Protocol):
    """A result that can be written as JSON."""

    def to_json(self) -> dict[str, Any]:
        """The result under stable names."""
        ...


@dataclass(frozen=True)
class Measured:
    """What was found: tables for people, and all of it as JSON."""

    tables: list[Table]
    told: dict[str, Any]

    @classmethod
    def of(cls, table: Table, result: JsonResult, **more: Any) -> Measured:
        """A result as a table and as JSON; `more` is added to the JSON."""
        return cls([table], result.to_json() | more)


def measure(sources: list[str], asked: Asked, means: EncodeOptions) -> Measured:
    """Measure the sources in the way that was asked for."""
    from diptych.evaluation.protocols.retrieval import gallery_subset
    from diptych.training.recipe_loader import trained_on_phrases

    if any(source.endswith(".npy") for source in sources):
        return _matrix(sources, asked, means)
    asked.check()
    on_phrases = [source for source in sources if trained_on_phrases(Path(source))]
    if on_phrases:
        return _localised(on_phrases[0], sources, asked, means)
    if asked.lister is not None:
        return _reranked(sources, asked.lister, asked.lengths, means)
    if asked.report and (len(sources) > 1 or means.corpus is None):
        raise ScoreError(_TOGETHER["--report"][0])
    if asked.within and asked.gallery is not None:
        if means.corpus is None or any(source.endswith(".safetensors") for source in sources):
            raise ScoreError(
                "--within: a gallery is cut from the corpus, before it is encoded; give runs and the corpus"
            )
        means = replace(means, corpus=gallery_subset(means.corpus.matched(), asked.gallery))
    encoded = [means.encode(source, asked.batch_statistics) for source in sources]
    measured = _within(encoded, asked.within) if asked.within else _between(sources, encoded, asked, means)
    if asked.batch_statistics != "running":
        measured.told["batch_statistics"] = asked.batch_statistics
    return measured


def _matrix(sources: list[str], asked: Asked, means: EncodeOptions) -> Measured:
    from diptych.evaluation.runs import evaluate_matrix
    from diptych.report.tables.evaluation import retrieval_table

    asked.check_alone(*_MATRIX)
    if len(sources) > 1 or means.corpus is None:
        raise ScoreError(_MATRIX[0])
    matched = means.corpus.matched()
    groups, precise = (matched.image_groups, matched.text_groups), asked.precise(matched.image_groups)
    result = evaluate_matrix(
        Path(sources[0]), *groups, folds=asked.folds, gallery=asked.gallery, average_precision=precise
    )
    return Measured.of(retrieval_table(result), result)


def _localised(run: str, sources: list[str], asked: Asked, means: EncodeOptions) -> Measured:
    from diptych.cli.training_runs import find_phrases
    from diptych.data.phrases import find_mentions
    from diptych.report.run_report import write_phrase_report
    from diptych.report.tables.evaluation import phrase_table

    why = f"{run}: was trained on phrases, and is measured by how well it finds them"
    asked.check_alone(why, ("--report",))
    if len(sources) > 1 or means.corpus is None:
        raise ScoreError(f"{why}; give this one run and the corpus")
    trained = means.open(run)
    found = find_phrases(Path(run), trained, means.corpus, asked.split, means.workers)
    print_unknown_texts(trained, find_mentions(means.corpus).phrases)
    if asked.report:
        print_note(f"wrote {write_phrase_report(Path(run), found, means.corpus, asked.split)}")
    return Measured.of(phrase_table(found), found)


def _reranked(sources: list[str], lister: str, lengths: list[int | None], means: EncodeOptions) -> Measured:
    from diptych.evaluation.protocols.rerank import check_retriever, rerank
    from diptych.report.tables.evaluation import reranking_table

    cheap = means.encode(lister)
    try:
        check_retriever(cheap)
    except ScoreError as reason:
        raise ScoreError(f"{lister}: {reason}") from None
    encoded = [means.encode(source) for source in sources]
    tops = [length for length in lengths if length is not None]
    with progress_bar("reranking") as progress:
        result = rerank(encoded, cheap, tops, every=None in lengths, progress=progress)
    return Measured.of(reranking_table(result), result)


def _within(encoded: list[Encoded], modality: Modality) -> Measured:
    from diptych.evaluation.protocols.within_modality import evaluate_within_modality
    from diptych.report.tables.evaluation import within_modality_table

    result = evaluate_within_modality(encoded, modality)
    return Measured.of(within_modality_table(result), result)


def _between(sources: list[str], encoded: list[Encoded], asked: Asked, means: EncodeOptions) -> Measured:
    """Recall between images and texts, with what is made of the same scores."""
    from diptych.evaluation.analyses.cross_retrieval import cross_retrieval
    from diptych.evaluation.analyses.score_overlap import score_overlap
    from diptych.evaluation.runs import cached_score, evaluate_encoded
    from diptych.report.tables.evaluation import cross_retrieval_table, overlap_table, retrieval_table

    score, more = None, {}
    if asked.phrases is not None:
        score = _joined(encoded, asked.phrases, asked.share, asked.phrases_from, means)
        more["phrases"] = {"run": asked.phrases, "share": asked.share, "from": asked.phrases_from}
    elif asked.report or asked.cross or asked.overlap:
        score = cached_score(encoded)
    precise = asked.precise(encoded[0].image_groups)
    result = evaluate_encoded(encoded, folds=asked.folds, gallery=asked.gallery, average_precision=precise, score=score)
    measured = Measured.of(retrieval_table(result), result, **more)
    if asked.report:
        print_note(f"wrote {_report(Path(sources[0]), encoded[0], result, score, asked, means)}")
    if asked.cross:
        assert score is not None
        cross = cross_retrieval(score, encoded[0].image_groups, encoded[0].text_groups)
        measured.tables.append(cross_retrieval_table(cross))
        measured.told["cross_retrieval"] = cross.to_json()
    if asked.overlap:
        assert score is not None
        shared = score_overlap(score, encoded[0].image_groups, encoded[0].text_groups)
        measured.tables.append(overlap_table(shared))
        measured.told["overlap"] = shared.to_json()
    return measured


def _joined(encoded: Sequence[Encoded], run: str, share: float, source: PhraseSource, means: EncodeOptions) -> Score:
    """The score of encodings joined with that of a region-phrase run, by the phrases of the texts."""
    from diptych.evaluation.localisation.localise import check_can_localise
    from diptych.evaluation.protocols.sentence_phrases import (
        annotated_phrases,
        chunked_phrases,
        combined_score,
        phrase_score,
    )
    from diptych.evaluation.runs import ensemble_score

    sentences = ensemble_score(encoded)
    # the corpus as it was encoded: without the images that could not be read
    corpus = next((each.corpus for each in encoded if each.corpus is not None), None)
    if corpus is None:
        raise ScoreError("--phrases needs a run and a corpus; files of encodings do not hold the texts")
    phrases = annotated_phrases(corpus) if source == "annotation" else chunked_phrases(corpus)
    print_note(f"{len(phrases.words):,} distinct phrases of {len(corpus.texts):,} texts")
    trained = means.open(run)
    try:
        check_can_localise(trained.matcher)
    except RunError as reason:
        raise RunError(f"--phrases {run}: {reason}") from None
    with progress_bar(f"encoding {Path(run).name}") as progress:
        return combined_score(sentences, phrase_score(trained, corpus, phrases, means.workers, progress), share)


def _report(
    run: Path, encoded: Encoded, result: RetrievalResult, score: Score | None, asked: Asked, means: EncodeOptions
) -> Path:
    from diptych.data.open import open_corpus
    from diptych.report.run_report import write_report
    from diptych.report.sections.hard_negatives import hard_negatives_section

    negatives = hard_negatives_section(run, means.open(str(run)), open_corpus(asked.data))
    return write_report(run, encoded, result, asked.split, hard_negatives=negatives, score=score, stores=means.features)
