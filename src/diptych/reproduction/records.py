"""The record of a finished run: its metrics, its cost and the rank of every test query, without its weights.

A record is two files, `KEY.json` and `KEY.npz`. All statistics are computed from records, on any machine and at any
time; a run with a record is finished, whether or not its weights are still there.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from diptych.errors import RunError
from diptych.evaluation.localisation.phrase_metrics import PHRASE, PHRASE_SELECTION_METRICS, GroundingResult
from diptych.evaluation.metrics.ranks import Ranks
from diptych.evaluation.metrics.recall import CUTOFFS, IMAGE_TO_TEXT
from diptych.evaluation.metrics.significance import draw_metrics
from diptych.evaluation.protocols.within_modality import PREFIXES, WithinModalityRanks
from diptych.files import atomic_write, read_json, write_json
from diptych.settings import Settings

DRAWS, SEED = 1000, 0  # of the bootstrap: the same groups in every record of the same corpus

Drawn = Mapping[str, NDArray[np.float64]]  # by metric: its value in each draw of groups, (draws,)

_TEXTS = PREFIXES["texts"]

# The groups of the queries, by the first part of a metric's name: a model may not have all tasks.
_RETRIEVAL_QUERIES = ("image_groups", "text_groups")
_QUERIES = {_TEXTS: ("within_groups",), PHRASE: ("phrase_images",)}


class RecordHeader(Settings):
    """What is known of a run besides its ranks; `metrics` are those of test, `curve` the val metric after each epoch.

    `seconds` is the CPU time of its epochs on `machine`, and `pairs` how many pairs an epoch has. `arrays` is a hash
    of the file with the ranks.
    """

    key: str
    title: str
    diptych: str
    corpus: str
    recipe: dict[str, Any]
    metrics: dict[str, float]
    val: dict[str, float] = Field(default_factory=dict)
    curve: tuple[float, ...] = ()
    seconds: float = 0.0
    epochs: int = 0
    pairs: int = 0
    machine: str = ""
    arrays: str = ""


@dataclass(frozen=True, eq=False)
class QueryRanks:
    """The ranks of the test queries of a run, for each of the tasks that it was measured on."""

    retrieval: Ranks | None = None
    texts: WithinModalityRanks | None = None
    phrases: GroundingResult | None = None


@dataclass(frozen=True, eq=False)
class Record:
    """A run that was measured, from `measuring` or from its files."""

    header: RecordHeader
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, header: RecordHeader, ranks: QueryRanks) -> Record:
        """A record of what was measured."""
        arrays: dict[str, NDArray[Any]] = {}
        if (found := ranks.retrieval) is not None:
            arrays |= {"image_ranks": found.images, "text_ranks": found.texts}
            arrays |= {"image_groups": found.image_groups, "text_groups": found.text_groups}
        if (within := ranks.texts) is not None:
            arrays |= {"within_ranks": within.ranks, "within_groups": within.groups}
        if (phrases := ranks.phrases) is not None:
            arrays |= {"phrase_ranks": phrases.ranks, "phrase_images": phrases.images}
        return cls(header, {name: _compact(array) for name, array in arrays.items()})

    def save(self, folder: Path) -> None:
        """Write the ranks and then the rest, so that a record that can be read is complete."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays)  # type: ignore[arg-type]
        content = buffer.getvalue()
        with atomic_write(_arrays_file(folder, self.header.key)) as temporary:
            temporary.write_bytes(content)
        header = self.header.model_copy(update={"arrays": hashlib.sha256(content).hexdigest()})
        write_json(_header_file(folder, self.header.key), header.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path, key: str) -> Record:
        """Read a record; RunError if it is damaged."""
        header, file = read_header(folder, key), _arrays_file(folder, key)
        try:
            content = file.read_bytes()
        except OSError as reason:
            raise RunError(f"{file}: cannot be read ({reason.strerror}); {_again(folder, key)}") from None
        if hashlib.sha256(content).hexdigest() != header.arrays:
            raise RunError(f"{file}: not the file that was written with its .json; {_again(folder, key)}")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return cls(header, {name: arrays[name] for name in arrays.files})

    def queries(self, metric: str) -> str:
        """A digest of the test queries of a metric; only records of the same queries can be compared query by query."""
        digest = hashlib.sha256()
        for name in _QUERIES.get(metric.partition("_")[0], _RETRIEVAL_QUERIES):
            digest.update(name.encode() + np.ascontiguousarray(self.arrays[name].astype(np.int64)).tobytes())
        return digest.hexdigest()

    @cached_property
    def drawn(self) -> Drawn:
        """The metrics in each draw of test groups; the draws are the same for all records of the same queries."""
        arrays = {name: array.astype(np.int64) for name, array in self.arrays.items() if name != "phrase_ranks"}
        drawn: dict[str, NDArray[np.float64]] = {}
        if "image_ranks" in arrays:
            names = ("image_ranks", "text_ranks", "image_groups", "text_groups")
            drawn |= draw_metrics([_ranks(*(arrays[name] for name in names))], CUTOFFS, DRAWS, SEED)
        if "within_ranks" in arrays:
            ranks, groups = arrays["within_ranks"], arrays["within_groups"]
            within = draw_metrics([_ranks(ranks, ranks, groups, groups)], CUTOFFS, DRAWS, SEED)
            drawn |= {f"{_TEXTS}_r{cutoff}": within[f"{IMAGE_TO_TEXT}_r{cutoff}"] for cutoff in CUTOFFS}
        if "phrase_ranks" in self.arrays:
            found = self._grounding(self.arrays["phrase_ranks"].astype(np.float64), arrays["phrase_images"])
            columns = found.bootstrap_metrics.T
            drawn |= dict(zip(PHRASE_SELECTION_METRICS, columns, strict=False))  # the ceiling comes after them
        return drawn

    @staticmethod
    def _grounding(ranks: NDArray[np.float64], images: NDArray[np.int64]) -> GroundingResult:
        rows, boxes = np.arange(len(ranks)), np.zeros((len(ranks), 4), np.float32)
        return GroundingResult(ranks, images, [()] * len(ranks), rows, boxes)


def has_record(folder: Path, key: str) -> bool:
    """Whether a run is finished: its record is there."""
    return _header_file(folder, key).is_file()


def read_header(folder: Path, key: str) -> RecordHeader:
    """A record without its ranks; RunError if it is damaged."""
    file = _header_file(folder, key)
    try:
        return RecordHeader.model_validate(read_json(file, RunError))
    except ValidationError:
        raise RunError(f"{file}: not a record; {_again(folder, key)}") from None


def all_headers(folder: Path) -> Sequence[RecordHeader]:
    """All records of a folder, without their ranks."""
    return [read_header(folder, file.stem) for file in sorted(folder.glob("*.json"))]


def text_metrics(found: WithinModalityRanks) -> dict[str, float]:
    """The recalls among the texts, by name."""
    return {f"{_TEXTS}_r{cutoff}": float(np.mean(found.ranks <= cutoff) * 100) for cutoff in CUTOFFS}


def phrase_metrics(found: GroundingResult) -> dict[str, float]:
    """The recalls of phrase localisation and their sum, by name."""
    return {name: value for name, value in found.metrics.items() if name.startswith(PHRASE)}


def _ranks(
    images: NDArray[np.int64], texts: NDArray[np.int64], image_groups: NDArray[np.int64], text_groups: NDArray[np.int64]
) -> Ranks:
    return Ranks(images, texts, image_groups, text_groups, np.arange(len(images)), np.arange(len(texts)))


def _compact(array: NDArray[Any]) -> NDArray[Any]:
    """The array in four bytes per value, which every rank and row fits into."""
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)


def _again(folder: Path, key: str) -> str:
    return f"delete {_header_file(folder, key)} to train the run again"


def _header_file(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"


def _arrays_file(folder: Path, key: str) -> Path:
    return folder / f"{key}.npz"
