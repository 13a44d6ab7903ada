"""The options of `diptych evaluate` that select what is measured, and which of them can be combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diptych.errors import ScoreError

Modality = Literal["texts", "images"]
PhraseSource = Literal["annotation", "chunker"]
BatchStatistics = Literal["running", "test"]
TextShifts = Literal["one", "mean"]

DEFAULT_SHARE = 0.2  # weight of the phrases in a combined score: alpha of the two-branch paper

ONE_MATRIX = "a score matrix is evaluated alone, with the corpus it was computed from: SCORES.npy DATA"
ONE_RUN_REPORT = "--report needs one run and a corpus, in one gallery"

# For each option that excludes others: a description of what it does, and the options that it can be combined with.
_COMBINATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "--rerank": ("--rerank measures one gallery", ()),
    "--within": ("--within measures one gallery of one modality", ("--gallery", "--batch-statistics")),
    "--phrases": (
        "--phrases combines two scores",
        ("--folds", "--gallery", "--cross", "--overlap", "--map", "--batch-statistics"),
    ),
    "--report": (ONE_RUN_REPORT, ("--cross", "--overlap", "--map")),
    "--cross": ("--cross measures one gallery", ("--report", "--phrases", "--overlap", "--map", "--batch-statistics")),
    "--overlap": (
        "--overlap measures one gallery",
        ("--report", "--phrases", "--cross", "--map", "--batch-statistics"),
    ),
    "--eccv": ("--eccv measures COCO's test split by several protocols", ("--batch-statistics",)),
    "--grades": ("--grades measures graded pairs", ("--batch-statistics",)),
}
_RANKS_OPTIONS = ("--folds", "--gallery", "--map", "--report", "--cross", "--overlap")
_MATRIX_OPTIONS = ("--folds", "--gallery", "--map", "--eccv", "--grades")


@dataclass(frozen=True)
class EvaluationOptions:
    """What to measure. `rerank_depths` are numbers of answers to re-rank; None stands for all of them.

    Beside the file `resume`, what an interrupted evaluation has compared is kept.
    """

    split: str
    folds: int
    gallery: int | None
    rerank_depths: list[int | None]
    retriever: str | None
    cross_retrieval: bool
    score_overlap: bool
    average_precision: bool
    within: Modality | None
    phrase_run: str | None
    phrase_share: float
    phrase_source: PhraseSource
    batch_statistics: BatchStatistics
    report: bool
    baselines: bool = True
    resume: Path | None = None
    eccv: bool = False
    grades: Path | None = None

    @property
    def by_judgements(self) -> bool:
        """Whether something that people judged is measured, instead of retrieval by groups."""
        return self.eccv or self.grades is not None

    def check(self) -> None:
        """Raise a ScoreError for options that cannot be combined."""
        for option in self._given():
            if option in _COMBINATIONS:
                description, others = _COMBINATIONS[option]
                self.allow_only((option, *others), description)

    def check_for_matrix(self) -> None:
        """Raise a ScoreError for options that a score matrix does not support."""
        self.allow_only(_MATRIX_OPTIONS, ONE_MATRIX)
        self.check()

    def check_for_ranks(self) -> None:
        """Raise a ScoreError for options that several processes do not share."""
        self.allow_only(_RANKS_OPTIONS, "several processes share retrieval between images and texts")

    def allow_only(self, allowed: Sequence[str], description: str) -> None:
        """Raise a ScoreError for all options but these."""
        if unsupported := [option for option in self._given() if option not in allowed]:
            raise ScoreError(f"{description}; remove {', '.join(unsupported)}")

    def _given(self) -> list[str]:
        """The given options, among those that cannot be combined with all others."""
        given = {
            "--rerank": self.retriever is not None,
            "--within": self.within is not None,
            "--phrases": self.phrase_run is not None,
            "--report": self.report,
            "--cross": self.cross_retrieval,
            "--overlap": self.score_overlap,
            "--map": self.average_precision,
            "--folds": self.folds > 1,
            "--gallery": self.gallery is not None,
            "--batch-statistics": self.batch_statistics != "running",
            "--eccv": self.eccv,
            "--grades": self.grades is not None,
        }
        return [option for option, is_given in given.items() if is_given]


def parse_rerank_depths(rerank: str | None) -> list[int | None]:
    """The numbers in a value of --rerank such as "10,20,all"; None stands for "all"."""
    words = [] if rerank is None else [word.strip() for word in rerank.split(",")]
    for word in words:
        if word != "all" and not (word.isascii() and word.isdigit() and int(word) > 0):
            raise ScoreError(
                f"--rerank {rerank}: {word!r} is not a positive number or 'all'; write, for example, 10,20,50,all"
            )
    if words and set(words) == {"all"}:
        raise ScoreError("--rerank all: name at least one number to compare all pairs with, such as 20,all")
    return [None if word == "all" else int(word) for word in words]
