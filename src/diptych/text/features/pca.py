"""Principal component analysis of rows that arrive in blocks: only their covariance is kept in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.errors import RecipeError

_RANK_TOLERANCE = 1e-10  # smaller variances, relative to the largest, are rounding errors
_COLUMN_CHUNKS = 4  # the product is symmetric: most of what lies below the diagonal is not computed


@dataclass(frozen=True)
class PrincipalComponents:
    """The mean of the rows, and the directions of largest variance, the largest first."""

    mean: Tensor  # (entries,)
    components: Tensor  # (size, entries)

    def __call__(self, rows: Tensor) -> Tensor:
        """Project rows (rows, entries) to (rows, size): centred, not whitened."""
        return (rows - self.mean) @ self.components.T


class Covariance:
    """The covariance of rows, accumulated block by block in double precision."""

    def __init__(self, entries: int) -> None:
        self._products = torch.zeros(entries, entries, dtype=torch.float64)  # upper triangle
        self._sum = torch.zeros(entries, dtype=torch.float64)
        self._count = 0.0
        self._rows = 0

    def add(self, rows: Tensor, counts: Tensor) -> None:
        """Add rows (rows, entries); row i counts `counts[i]` times."""
        rows = rows.double()
        weighted = rows * counts.double().unsqueeze(1)
        for columns in torch.arange(rows.shape[1]).chunk(_COLUMN_CHUNKS):
            start, stop = int(columns[0]), int(columns[-1]) + 1
            self._products[:stop, start:stop] += rows[:, :stop].T @ weighted[:, start:stop]
        self._sum += weighted.sum(0)
        self._count += float(counts.sum())
        self._rows += len(rows)

    def principal_components(self, size: int) -> PrincipalComponents:
        """The first `size` components; a size above the rank of the rows raises a RecipeError."""
        mean = self._sum / self._count
        covariance = self._products / self._count - mean.outer(mean)
        variances, directions = torch.linalg.eigh(covariance, UPLO="U")  # in ascending order
        positive = int((variances > _RANK_TOLERANCE * variances[-1]).sum()) if variances[-1] > 0 else 0
        rank = min(positive, self._rows - 1)
        if size > rank:
            raise RecipeError(
                f"model.text.size = {size}: the {self._rows} distinct training texts have only rank {rank}; "
                f"set model.text.size = {rank} or less, or leave it out for no PCA"
            )
        components = directions[:, -size:].flip(1).T
        # The sign of a component is arbitrary: its largest entry is made positive, so that results are reproducible.
        largest = components.gather(1, components.abs().argmax(1, keepdim=True))
        return PrincipalComponents(mean, components * largest.sign())
