"""Sampled softmax: each step compares with a random sample of all classes and touches no others.

A classifier of 113,287 classes with 2,048 numbers each takes 0.9 GB, its gradient and momentum as much again, and a
full step passes over them several times. Here the tables of all classes live outside of the optimiser, which trains
only `sampled` rows: the drawn classes and their momentum are copied in before a step and back after it.

The classes of the batch are always in the sample. The others are drawn uniformly, and each stands for several: with
log((classes - own) / (sampled - own)) added to its logit, where `own` is the number of classes in the batch, the
denominator of the softmax is unbiased.

The gradient is not: it is a quotient with that denominator. Its expectation is off by more, the fewer classes are drawn
and the more of the sum belongs to a few of them, as it does late in training. With logits of standard deviation 2 (5)
and a learned label, it differs from the gradient over all of 200 classes by 13% (42%) of its length with 10 classes, 3%
(14%) with 50, and 0.4% (2%) with 150; without the weights, by 78% (93%), 36% (66%) and 6% (18%). With 4,096 of 113,287
classes it is 0.2% (21%). `benchmarks/probes/sampled_softmax.py` measures it. Draw as many classes as memory allows, or
use all of them (`classes_at_once`) for the last epochs.

Weights, weight decay, momentum and Adam's averages of a class change only in
steps that draw it. Adam corrects its averages by the total number of steps, so a class that is first drawn late begins
with a larger step than the rate.

Reference: Jean et al. 2015, On Using Very Large Target Vocabulary for Neural Machine Translation, section 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diptych.errors import RecipeError


class SampledClassifier:
    """The tables of all classes by name, (classes, ...) each, and the `rows` of the drawn classes as parameters.

    It draws from torch's default generator, whose state is part of a snapshot. The tables are updated in place.
    """

    def __init__(self, tables: dict[str, Tensor], sampled: int) -> None:
        self.tables = tables
        self.classes = len(next(iter(tables.values())))
        self.sampled = min(sampled, self.classes)
        starts = {name: nn.Parameter(table[: self.sampled].clone()) for name, table in tables.items()}
        self.rows = nn.ParameterDict(starts)
        self._states: dict[tuple[str, str], Tensor] = {}  # of the optimiser, by table and state name
        self._drawn = torch.arange(self.sampled, device=self.rows[next(iter(tables))].device)

    def draw(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Draw for a batch whose pairs have these classes, (pairs,), in time independent of the number of classes.

        Returns the row of each pair's class, (pairs,), and the correction to add to the logits, (sampled,).
        """
        own = torch.unique(labels)  # sorted
        wanted, others = self.sampled - len(own), self.classes - len(own)
        if wanted < min(1, others):
            raise RecipeError(
                f"objective.sampled = {self.sampled}: a batch has {len(own)} classes and needs others to compare with; "
                f"set more than {len(own)}, or lower batches.size"
            )
        chosen = _distinct(others, wanted, labels.device)
        # The k-th of the other classes is k plus the number of own classes before it.
        chosen += torch.searchsorted(own - torch.arange(len(own), device=own.device), chosen, right=True)
        self._drawn = torch.cat([own, chosen]).sort().values
        correction = torch.full((self.sampled,), math.log(others / wanted) if wanted else 0.0, device=labels.device)
        correction[torch.searchsorted(self._drawn, own)] = 0
        return torch.searchsorted(self._drawn, labels), correction

    @torch.no_grad()
    def load(self, optimiser: Optimizer) -> None:
        """Copy the drawn classes into the rows, and their optimiser state into that of the rows."""
        for name, row in self.rows.items():
            torch.index_select(self.tables[name], 0, self._drawn, out=row)
            for key, state in _states(optimiser, row).items():
                torch.index_select(self._state(name, key, state), 0, self._drawn, out=state)

    @torch.no_grad()
    def store(self, optimiser: Optimizer) -> None:
        """Copy the rows and their optimiser state back into the tables."""
        for name, row in self.rows.items():
            self.tables[name].index_copy_(0, self._drawn, row)
            for key, state in _states(optimiser, row).items():
                self._state(name, key, state).index_copy_(0, self._drawn, state)

    def tensors(self) -> dict[str, Tensor]:
        """All tables to save: the classes, and their optimiser state."""
        return self.tables | {f"{name}.{key}": table for (name, key), table in self._states.items()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Resume with tables that were saved."""
        self._states = {}
        for full_name, saved in tensors.items():
            name, _, key = full_name.partition(".")
            if key:
                self._states[name, key] = saved.to(self.tables[name].device, copy=True)
            else:
                self.tables[name].copy_(saved)

    def _state(self, name: str, key: str, state: Tensor) -> Tensor:
        """The table of an optimiser state, created as zeros."""
        if (name, key) not in self._states:
            self._states[name, key] = torch.zeros_like(self.tables[name], dtype=state.dtype)
        return self._states[name, key]


def _states(optimiser: Optimizer, row: Tensor) -> dict[str, Tensor]:
    """The optimiser states that have one value per element of a parameter, such as momentum."""
    states = optimiser.state.get(row, {})
    return {key: state for key, state in states.items() if torch.is_tensor(state) and state.shape == row.shape}


def _distinct(count: int, wanted: int, device: torch.device) -> Tensor:
    """Distinct numbers below `count`; every set of them is equally likely."""
    if 2 * wanted >= count:
        return torch.randperm(count, device=device)[:wanted]
    drawn = torch.empty(0, dtype=torch.long, device=device)
    while True:
        drawn = torch.cat([drawn, torch.randint(count, (wanted + wanted // 2 + 8,), device=device)])
        ordered, places = drawn.sort(stable=True)
        new = torch.ones_like(ordered, dtype=torch.bool)
        new[1:] = ordered[1:] != ordered[:-1]
        first = places[new].sort().values  # position of each number's first draw
        if len(first) >= wanted:
            return drawn[first[:wanted]]
