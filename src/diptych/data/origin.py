"""data.json: which data a run was trained on and how it was split, so that it is evaluated on the same splits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diptych.data.corpus import Corpus
from diptych.data.open import open_corpus
from diptych.data.splitting import SplitRule, apply_rule, describe_splits
from diptych.errors import DataError, RunError
from diptych.files import read_json, write_text

_FORMAT = "diptych data"
_VERSION = 1


@dataclass(frozen=True)
class Origin:
    """The address of a corpus (None for one made in Python), the digest of its content, and the rule that split it.

    The rule is None if nobody asked for one: the data has splits of its own, or those that its format defaults to.
    """

    address: str | None
    digest: str
    rule: SplitRule | None = None

    @classmethod
    def of(cls, corpus: Corpus, digest: str) -> Origin:
        """The origin of a corpus, whose digest takes a moment to compute."""
        return cls(corpus.address, digest, corpus.split_origin if isinstance(corpus.split_origin, SplitRule) else None)

    def save(self, run: Path) -> None:
        """Write it into a run's folder."""
        content = {"format": _FORMAT, "version": _VERSION, "address": self.address, "digest": self.digest}
        content |= {} if self.rule is None else {"splits": self.rule.to_json()}
        # In ASCII: a path that is not valid UTF-8 contains lone surrogates, which could not be written otherwise.
        write_text(_file(run), json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, run: Path) -> Origin:
        """Read what a run was trained on; RunError if the run does not say."""
        if not _file(run).is_file() and not (run / "recipe.toml").is_file():
            raise RunError(f"{run}: no such run; name folders that `diptych train` made, and the data with --data")
        if not _file(run).is_file():
            raise RunError(f"{run}: does not say what it was trained on (it has no data.json); name it with --data")
        content = read_json(_file(run), RunError)
        if isinstance(content, dict) and (content.get("format"), content.get("version")) == (_FORMAT, _VERSION):
            address, digest, splits = (content.get(key) for key in ("address", "digest", "splits"))
            if isinstance(address, str | None) and isinstance(digest, str):
                with suppress(DataError, TypeError):
                    return cls(address, digest, None if splits is None else SplitRule(**splits))
        raise RunError(f"{_file(run)}: not a file that training has written; name the data with --data")


def _file(run: Path) -> Path:
    return run / "data.json"


def open_origin(runs: Sequence[Path]) -> tuple[Corpus, list[str]]:
    """The corpus that these runs were trained on, and a warning for each run that was trained on other content."""
    origins = [Origin.read(run) for run in runs]
    first = origins[0]
    for run, origin in zip(runs, origins, strict=True):
        if origin.address is None:
            raise RunError(f"{run}: was trained on a corpus made in Python, which has no address; name it with --data")
        if origin.address != first.address and origin.digest != first.digest:
            raise RunError(
                f"{runs[0]} was trained on {first.address}, {run} on {origin.address}; "
                "name the data to compare them on with --data"
            )
    rule = _common_rule(dict(zip(runs, origins, strict=True)), None)
    try:
        corpus = open_corpus(str(first.address))
    except DataError as reason:
        why = str(reason).partition(";")[0]
        raise RunError(f"{runs[0]}: its training data cannot be opened ({why}); name the data with --data") from None
    if rule is not None and corpus.split_origin != "source":
        corpus = apply_rule(corpus, rule)
    digest = corpus.digest()
    changed = [run for run, origin in zip(runs, origins, strict=True) if origin.digest != digest]
    return corpus, [f"{first.address}: has changed since {run} was trained on it" for run in changed]


def split_as_trained(
    corpus: Corpus, runs: Iterable[Path | str], rule: SplitRule | None = None
) -> tuple[Corpus, list[str]]:
    """The corpus with the splits that the runs were trained with, and notes about it for the user.

    Data with splits of its own keeps them. Other data is split by the rule that the runs have recorded, or by `rule`. A
    run that was trained with another rule, or on this data without one, is refused: it may have been trained on what
    is in test now.
    """
    origins = {Path(run): Origin.read(Path(run)) for run in runs if _file(Path(run)).is_file()}
    if corpus.split_origin == "source" and rule is None:
        return corpus, []
    rule = _common_rule(
        {run: origin for run, origin in origins.items() if origin.rule is not None or origin.address == corpus.address},
        rule,
    )
    if rule is None:
        return corpus, []
    corpus = apply_rule(corpus, rule)
    notes = [str(describe_splits(corpus))]
    digest = corpus.digest()
    for run, origin in origins.items():
        if origin.address == corpus.address and origin.digest != digest:
            notes.append(
                f"warning: {corpus.name} has changed since {run} was trained on it; some of the images that it was "
                "trained on may now be in val or test"
            )
    return corpus, notes


def _common_rule(origins: dict[Path, Origin], rule: SplitRule | None) -> SplitRule | None:
    """The rule of all runs, which must be `rule` if that is given."""
    for run, origin in origins.items():
        first = next(iter(origins.values())).rule if rule is None else rule
        if origin.rule != first:
            raise _other_splits(run, origin, first)
        rule = first
    return rule


def check_start(run: Path, corpus: Corpus) -> None:
    """Refuse to start from a run that was trained on the same data with other splits."""
    origin = Origin.read(run) if _file(run).is_file() else None
    if origin is None or origin.address is None or origin.address != corpus.address:
        return
    rule = Origin.of(corpus, origin.digest).rule
    if origin.rule != rule:
        raise _other_splits(run, origin, rule)


def _other_splits(run: Path, origin: Origin, rule: SplitRule | None) -> RunError:
    return RunError(
        f"{run}: was trained with the splits {origin.rule or 'of the data'}, not {rule or 'those of the data'}; use "
        "the same splits, because it may have been trained on images that are in val or test here"
    )
