"""The texts of a stage: token ids, and fitted text towers, whose fits and outputs are computed once and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.data.corpus import Integers
from diptych.errors import DataError, RunError
from diptych.files import atomic_write
from diptych.model import Model
from diptych.models.storage import load_tensors, save_tensors
from diptych.models.tower import FittedTextTower, TextTowerSettings, Tokens
from diptych.progress import ProgressCallback
from diptych.text.features.bags import DistinctTexts
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.tokenisers.tokeniser import known_texts as tokeniser_knows
from diptych.text.word_vectors import WordVectors

TEXTS_AT_ONCE = 4096  # large batches, because each distinct word is computed once per batch
FIT_VERSION = 1  # increase it when fitting changes, so that no older fit is reused


def fit_texts(
    tower: FittedTextTower,
    settings: TextTowerSettings,
    texts: TokenTable,
    vectors: WordVectors | None,
    tokeniser_digest: str,
    stores: Path,
    *,
    progress: ProgressCallback | None = None,
) -> bool:
    """Fit a tower to the training texts, or load the same fit from the folder of stores; returns whether it was fitted.

    A fit is identified by the tower's settings, the texts, the tokeniser and the word vectors.
    """
    digest = _digest(settings, texts, vectors, tokeniser_digest)
    path = stores / "texts" / f"{settings.name}-{digest[:16]}.safetensors"
    if path.exists():
        _load(tower, path, digest)
        return False
    tower.fit(texts, vectors, progress)
    save_tensors(path, tower.state_dict(), {"tower": settings.model_dump(mode="json"), "digest": digest})
    return True


def _digest(settings: TextTowerSettings, texts: TokenTable, vectors: WordVectors | None, vocabulary: str) -> str:
    shape = None if vectors is None else vectors.vectors.shape
    tower = settings.model_dump(mode="json")
    about = {"fitting": FIT_VERSION, "tower": tower, "vocabulary": vocabulary, "vectors": shape}
    arrays: list[NDArray[Any]] = [texts.offsets, texts.flat]
    if vectors is not None:
        arrays += [vectors.vectors, vectors.found]
    digest = hashlib.sha256(json.dumps({**about, "texts": len(texts)}, sort_keys=True).encode())
    for values in arrays:
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _load(tower: FittedTextTower, path: Path, digest: str) -> None:
    try:
        tensors, about = load_tensors(path)
    except RunError as reason:
        raise RunError(f"{reason}; or delete it to fit again") from None
    shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in tower.state_dict().items()}
    if about.get("digest") != digest or shapes != {name: (each.shape, each.dtype) for name, each in tensors.items()}:
        raise RunError(f"{path}: not the fit that its name says; delete it to fit again")
    tower.load_state_dict(tensors)


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """The output of a fitted tower for many texts: one row per distinct text, and the row of each text."""

    rows: NDArray[np.float32]  # (distinct texts, size)
    row_of: NDArray[np.int64]  # (texts,)

    def __len__(self) -> int:
        return len(self.row_of)

    def __getitem__(self, texts: NDArray[np.int64]) -> NDArray[np.float32]:
        """The features of these texts, (texts, size)."""
        return self.rows[self.row_of[texts]]


@torch.inference_mode()
def known_texts(tower: FittedTextTower, table: TokenTable, device: torch.device) -> NDArray[np.bool_]:
    """Whether each text of a table has a word that the tower knows: (texts,)."""
    distinct = DistinctTexts.from_table(table)
    known = [
        tower.known(Tokens(ids.to(device), lengths.to(device))).cpu().numpy()
        for ids, lengths in distinct.padded_batches(table, TEXTS_AT_ONCE)
    ]
    return np.asarray(np.concatenate(known)[distinct.inverse])


def text_features(
    tower: FittedTextTower,
    table: TokenTable,
    device: torch.device,
    stores: Path,
    progress: ProgressCallback | None = None,
) -> TextFeatures:
    """The output of a tower for all texts of a table, computed once and then read from the folder of stores.

    The file is identified by the fitted tower and the texts. `progress` counts distinct texts.
    """
    distinct = DistinctTexts.from_table(table)
    path = stores / "texts" / f"{tower.settings.name}-{_features_digest(tower, table)[:16]}.npy"
    if not path.exists():
        with atomic_write(path) as temporary:
            shape = (len(distinct.first), tower.size)
            rows = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
            put_features(tower, table, distinct, device, rows, progress)
            rows.flush()
    return TextFeatures(_mapped(path, (len(distinct.first), tower.size)), distinct.inverse)


@torch.inference_mode()
def put_features(
    tower: FittedTextTower,
    table: TokenTable,
    distinct: DistinctTexts,
    device: torch.device,
    rows: NDArray[np.float32],
    progress: ProgressCallback | None = None,
) -> None:
    """Write the output of a tower for each distinct text of a table into rows, (distinct texts, size)."""
    done = 0
    for ids, lengths in distinct.padded_batches(table, TEXTS_AT_ONCE):
        features: Tensor = tower(Tokens(ids.to(device), lengths.to(device)))
        rows[done : done + len(ids)] = features.cpu().numpy()
        done += len(ids)
        if progress:
            progress(done, len(rows))


def _features_digest(tower: FittedTextTower, table: TokenTable) -> str:
    digest = hashlib.sha256(str(FIT_VERSION).encode())
    for name, tensor in sorted(tower.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    for values in (table.offsets, table.flat):
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _mapped(path: Path, shape: tuple[int, int]) -> NDArray[np.float32]:
    try:
        rows = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError) as reason:
        raise RunError(f"{path}: damaged or truncated ({reason}); delete it to compute it again") from None
    if rows.shape != shape or rows.dtype != np.float32:
        raise RunError(f"{path}: not the text features that its name says; delete it to compute them again")
    return rows


@dataclass(frozen=True)
class StageTexts:
    """The texts of a stage: their token ids, and the output of a fitted text tower if the model has one."""

    model: Model
    stores: Path  # the folder that holds fits and features
    progress: ProgressCallback  # of computing text features
    report: Callable[[str], None]

    def known(self, texts: list[str]) -> Integers:
        """The rows of the texts with a word that the model knows; the others are reported."""
        tower = self.model.matcher.fitted_text_tower
        if tower is None:
            return np.arange(len(texts))
        known = known_texts(tower, self.model.tokeniser.encode_all(texts), self.model.device)
        if not known.all():
            rows = np.flatnonzero(~known)
            self.report(f"left out {_counted(rows)} without a known word; the first is {texts[rows[0]]!r}")
        if not known.any():
            raise DataError("none of the training texts has a known word; use word vectors of their language")
        return np.flatnonzero(known)

    def table(self, texts: Sequence[str]) -> TokenTable:
        """The token ids of the texts; those without a known word are reported and stay in the table."""
        table = self.model.tokeniser.encode_all(texts)
        known = tokeniser_knows(self.model.tokeniser, texts)
        if not known.all():
            rows = np.flatnonzero(~known)
            self.report(
                f"kept {_counted(rows)} without a known word, as good as empty to the model; the first is "
                f"{texts[rows[0]]!r}"
            )
        return table

    def features(self, table: TokenTable) -> TextFeatures | None:
        """The output of a fitted text tower for all texts; None if the model has none, or a cheap one."""
        tower = self.model.matcher.fitted_text_tower
        if tower is None or not tower.caches_features:
            return None
        return text_features(tower, table, self.model.device, self.stores, self.progress)


def _counted(rows: Integers) -> str:
    return "1 training text" if len(rows) == 1 else f"{len(rows):,} training texts"
