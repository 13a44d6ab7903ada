"""Opening DATA with the splits of --val and --test, or with those that a run was trained with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.cli.console import print_note

if TYPE_CHECKING:
    from diptych.data.corpus import Corpus
    from diptych.data.splitting import SplitRule


def split_rule(val: float | None, test: float | None) -> SplitRule | None:
    """The rule of --val and --test; None if neither is given."""
    from diptych.data.splitting import SplitRule

    return None if val is None and test is None else SplitRule(val or 0.0, test or 0.0)


def open_data(data: str, rule: SplitRule | None = None, runs: Iterable[Path | str] = ()) -> Corpus:
    """Open a corpus, split it by the rule or as the runs were trained, and print who has split it."""
    from diptych.data.open import open_corpus
    from diptych.data.origin import split_as_trained

    corpus, notes = split_as_trained(open_corpus(data), runs, rule)
    for note in notes:
        print_note(note)
    return corpus
