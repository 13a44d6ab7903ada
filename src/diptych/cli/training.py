"""What `diptych train` and `diptych sweep` share: their options, progress bars and the message after Ctrl-C."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.cli.console import print_note, print_skipped, progress_bar, stderr
from diptych.cli.open_data import open_data
from diptych.cli.options import thread_count
from diptych.errors import CallbackError

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.data.splitting import SplitRule
    from diptych.report.run_evaluator import RunEvaluator
    from diptych.training.engine.callbacks import Callback
    from diptych.training.recipe import Recipe


@dataclass(frozen=True)
class TrainingOptions:
    """The options that apply to every run of a command; `rule` is that of --val and --test."""

    data: str
    rule: SplitRule | None = None
    features: Path = Path("features")
    device: str = "auto"
    workers: int | None = None
    log: Sequence[str] = ()

    def open_corpus(self, continued: Iterable[Path] = ()) -> Corpus:
        """Open the corpus and print how it was split, unless it has splits, and how many problems it has, if any.

        Runs that are continued keep their splits.
        """
        from diptych.data.splitting import describe_splits, noise_warning

        corpus = open_data(self.data, self.rule, continued)
        for note in (describe_splits(corpus) if corpus.split_origin == "default" else None, noise_warning(corpus)):
            if note is not None:
                print_note(note)
        if corpus.problems:
            count = len(corpus.problems)
            problems = "1 problem" if count == 1 else f"{count:,} problems"
            print_note(f"skipped or repaired {problems} in the data; see `diptych data check {self.data}`")
        return corpus

    def evaluator(self, corpus: Corpus) -> RunEvaluator:
        """An evaluator that shows its progress and the images that it skips."""
        from diptych.report.run_evaluator import RunEvaluator

        return RunEvaluator(corpus, thread_count(self.workers), progress_bar, print_skipped)

    def callbacks(self) -> list[Callback]:
        """The callbacks of one training: a progress bar, and a logger for each name of --log."""
        from diptych.cli.training_bar import TrainingBar
        from diptych.training.loggers.logger import make_logger

        return [TrainingBar(stderr), *(make_logger(name) for name in dict.fromkeys(self.log))]


def train_runs(
    runs: Mapping[str, Recipe], into: Path, splits: Collection[str], options: TrainingOptions
) -> dict[str, dict[str, dict[str, float]]]:
    """Train and measure several runs with progress displays and loggers: metrics by run, split and name."""
    from diptych.report.run_evaluator import train_and_measure

    options.callbacks()  # raises now if a logger's package is missing

    def titled_callbacks(title: str) -> list[Callback]:
        print_note(title)
        return options.callbacks()

    evaluator = options.evaluator(options.open_corpus([into / name for name in runs]))
    try:
        return train_and_measure(
            runs,
            into,
            splits,
            evaluator,
            device=options.device,
            workers=options.workers,
            features=options.features,
            callbacks=titled_callbacks,
        )
    except (KeyboardInterrupt, CallbackError):
        print_note(f"stopped; run the same command again to continue (folder {into})")
        raise
