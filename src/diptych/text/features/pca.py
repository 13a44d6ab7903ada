"""Principal components of rows that come in blocks: only their covariance is held."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.errors import RecipeError

_RANK = 1e-10  # variances below this part of the largest are rounding
_CHUNKS = 4  # of columns; products below the diagonal are those above it, and are left out


@dataclass(frozen=True)
class PrincipalComponents:
    """The mean of the rows, and the directions in which they vary most, the widest first."""

    mean: Tensor  # (entries,)
    components: Tensor  # (size, entries)

    def __call__(self, rows: Tensor) -> Tensor:
        """Rows (rows, entries) to (rows, size): centred, turned and cut, not whitened."""
        return (rows - self.mean) @ self.components.T


class Covariance:
    """The covariance of rows, summed block by block in double precision."""

    def __init__(self, entries: int) -> None:
        self._products = torch.zeros(entries, entries, dtype=torch.float64)  # its upper triangle
        self._sum = torch.zeros(entries, dtype=torch.float64)
        self._count = 0.0
        self._rows = 0

    def add(self, rows: Tensor, counts: Tensor) -> None:
        """Add rows (rows, entries), row i as often as `counts[i]` says."""
        rows = rows.double()
        weighted = rows * counts.double().unsqueeze(1)
        for columns in torch.arange(rows.shape[1]).chunk(_CHUNKS):
            start, stop = int(columns[0]), int(columns[-1]) + 1
            self._products[:stop, start:stop] += rows[:, :stop].T @ weighted[:, start:stop]
        self._sum += weighted.sum(0)
        self._count += float(counts.sum())
        self._rows += len(rows)

    def principal(self, size: int) -> PrincipalComponents:
        """The first `size` components; more than the rank of the rows are refused."""
        mean = self._sum / self._count
        covariance = self._products / self._count - mean.outer(mean)
        variances, directions = torch.linalg.eigh(covariance, UPLO="U")  # the smallest first
        seen = int((variances > _RANK * variances[-1]).sum()) if variances[-1] > 0 else 0
        rank = min(seen, self._rows - 1)
        if size > rank:
            raise RecipeError(
                f"model.text.size = {size}: the {self._rows} distinct training texts have rank {rank} only; "
                f"set model.text.size = {rank} or less, or leave it out for no PCA"
            )
        components = directions[:, -size:].flip(1).T
        # A component's sign is arbitrary: the largest entry is positive, so that equal data give equal components.
        largest = components.gather(1, components.abs().argmax(1, keepdim=True))
        return PrincipalComponents(mean, components * largest.sign())
