"""The features of texts: the output of a frozen text encoder, computed once per distinct text and stored."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.errors import RunError
from diptych.files import atomic_write
from diptych.models.packaged import packaged_header
from diptych.models.tower import TextTower, Tokens
from diptych.progress import ProgressCallback
from diptych.text.features.bags import DistinctTexts
from diptych.text.tokenisers.token_table import TokenTable

VERSION = 1  # increase it when features change, so that no older ones are read


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """The features of many texts: one row per distinct text, and the row of each text."""

    rows: NDArray[np.float32]  # (distinct texts, size)
    row_of: NDArray[np.int64]  # (texts,)

    def __len__(self) -> int:
        return len(self.row_of)

    def __getitem__(self, texts: NDArray[np.int64]) -> NDArray[np.float32]:
        """The features of these texts, (texts, size)."""
        return self.rows[self.row_of[texts]]

    def statistics(self) -> tuple[Tensor, Tensor]:
        """The mean and the standard deviation of each entry over all texts: (size,) each."""
        counts = np.bincount(self.row_of, minlength=len(self.rows))[:, None]
        sums, squares = np.zeros((2, self.rows.shape[1]))
        for start in range(0, len(self.rows), 4096):
            part = np.asarray(self.rows[start : start + 4096], np.float64)
            weighted = part * counts[start : start + 4096]
            sums, squares = sums + weighted.sum(0), squares + (weighted * part).sum(0)
        mean = sums / len(self)
        variance = np.maximum(squares / len(self) - mean**2, 0)
        return torch.from_numpy(mean.astype(np.float32)), torch.from_numpy(np.sqrt(variance).astype(np.float32))


def text_features(
    tower: TextTower,
    table: TokenTable,
    device: torch.device,
    stores: Path,
    progress: ProgressCallback | None = None,
) -> TextFeatures:
    """The features of all texts of a table, computed once and then read from the folder of stores.

    The file is identified by what computes the features and by the texts. `progress` counts distinct texts.
    """
    distinct = DistinctTexts.from_table(table)
    shape = len(distinct.first), tower.feature_size
    path = stores / "texts" / f"{type(tower).__name__.lower()}-{_digest(tower, table)[:16]}.npy"
    if not path.exists():
        with atomic_write(path) as temporary:
            rows = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
            put_features(tower, table, distinct, device, rows, progress)
            rows.flush()
    return TextFeatures(_mapped(path, shape), distinct.inverse)


@torch.inference_mode()
def put_features(
    tower: TextTower,
    table: TokenTable,
    distinct: DistinctTexts,
    device: torch.device,
    rows: NDArray[np.float32],
    progress: ProgressCallback | None = None,
) -> None:
    """Write the features of each distinct text of a table into rows, (distinct texts, size); nothing is dropped out."""
    tower.feature_part.eval()
    # Batches of texts of similar lengths need little padding.
    order = np.argsort(table.lengths[distinct.first], kind="stable")
    at_once = tower.features_at_once
    for start in range(0, len(order), at_once):
        some = order[start : start + at_once]
        ids, lengths = (torch.from_numpy(values).to(device) for values in table.batch(distinct.first[some]))
        rows[some] = tower.features(Tokens(ids, lengths)).cpu().numpy()
        if progress:
            progress(start + len(some), len(rows))


def _digest(tower: TextTower, table: TokenTable) -> str:
    digest = hashlib.sha256(str(VERSION).encode())
    if about := tower.feature_options | packaged_header(tower.feature_part):
        digest.update(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tower.feature_part.state_dict().items()):
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
