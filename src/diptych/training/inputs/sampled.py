"""Sampled softmax: each step looks at a drawn part of all classes, and touches no other.

A classifier of 113,287 classes and 2,048 numbers each is 0.9 GB, its gradient and its momentum as much again, and a
step of all of it goes over them several times. Here the tables of all classes lie outside of the optimiser. What it
trains is `sampled` rows, into which the drawn classes and their momentum are copied before a step, and from which they
are copied back.

The classes of the batch are always among the drawn. The others are drawn evenly, and each stands for several: with
log((classes - own) / (sampled - own)) added to its logit, the sum of exponentials that a softmax divides by is on
average that over all classes. A class moves, decays, and has its momentum or Adam's averages fade, only in steps that
draw it. Adam corrects its averages by the number of all steps: one that is drawn late begins with more than the rate.

Reference: Jean et al. 2015, On Using Very Large Target Vocabulary for Neural Machine Translation, section 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diptych.errors import RecipeError


class SampledRows:
    """The tables of all classes by name, (classes, ...) each, and as parameters the `rows` of those that are drawn.

    It draws with torch's own generator, whose state a snapshot keeps. The tables are worked on where they are.
    """

    def __init__(self, tables: dict[str, Tensor], sampled: int) -> None:
        self.tables = tables
        self.classes = len(next(iter(tables.values())))
        self.sampled = min(sampled, self.classes)
        starts = {name: nn.Parameter(table[: self.sampled].clone()) for name, table in tables.items()}
        self.rows = nn.ParameterDict(starts)
        self._states: dict[tuple[str, str], Tensor] = {}  # of the optimiser, by table and by its own name
        self._drawn = torch.arange(self.sampled, device=self.rows[next(iter(tables))].device)

    def draw(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Draw for a batch whose pairs have these classes, (pairs,), in time that does not grow with all classes.

        It gives the row of each pair's class, (pairs,), and what is to be added to the logits, (sampled,).
        """
        own = torch.unique(labels)  # in order
        wanted, others = self.sampled - len(own), self.classes - len(own)
        if wanted < min(1, others):
            raise RecipeError(
                f"objective.sampled = {self.sampled}: a batch has {len(own)} classes, and others are to be drawn "
                f"beside them; set more than {len(own)}, or lower batches.size"
            )
        chosen = _distinct(others, wanted, labels.device)
        # The k-th of the others is k plus the number of own classes before it.
        chosen += torch.searchsorted(own - torch.arange(len(own), device=own.device), chosen, right=True)
        self._drawn = torch.cat([own, chosen]).sort().values
        correction = torch.full((self.sampled,), math.log(others / wanted) if wanted else 0.0, device=labels.device)
        correction[torch.searchsorted(self._drawn, own)] = 0
        return torch.searchsorted(self._drawn, labels), correction

    @torch.no_grad()
    def load(self, optimiser: Optimizer) -> None:
        """Put the drawn classes into the rows, and what the optimiser knows of them into its state."""
        for name, row in self.rows.items():
            torch.index_select(self.tables[name], 0, self._drawn, out=row)
            for key, state in _states(optimiser, row).items():
                torch.index_select(self._state(name, key, state), 0, self._drawn, out=state)

    @torch.no_grad()
    def store(self, optimiser: Optimizer) -> None:
        """Put the rows, and what the optimiser knows of them, back into the tables."""
        for name, row in self.rows.items():
            self.tables[name].index_copy_(0, self._drawn, row)
            for key, state in _states(optimiser, row).items():
                self._state(name, key, state).index_copy_(0, self._drawn, state)

    def tensors(self) -> dict[str, Tensor]:
        """All tables, to be kept: those of the classes, and those of the optimiser."""
        return self.tables | {f"{name}.{key}": table for (name, key), table in self._states.items()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on with tables that were kept."""
        self._states = {}
        for full_name, kept in tensors.items():
            name, _, key = full_name.partition(".")
            if key:
                self._states[name, key] = kept.to(self.tables[name].device, copy=True)
            else:
                self.tables[name].copy_(kept)

    def _state(self, name: str, key: str, state: Tensor) -> Tensor:
        """The table of a state of the optimiser; zeros, when it is new."""
        if (name, key) not in self._states:
            self._states[name, key] = torch.zeros_like(self.tables[name], dtype=state.dtype)
        return self._states[name, key]


def _states(optimiser: Optimizer, row: Tensor) -> dict[str, Tensor]:
    """What an optimiser keeps for each number of a parameter, such as momentum."""
    kept = optimiser.state.get(row, {})
    return {key: state for key, state in kept.items() if torch.is_tensor(state) and state.shape == row.shape}


def _distinct(count: int, wanted: int, device: torch.device) -> Tensor:
    """Distinct numbers below `count`, each set of them as likely as any other."""
    if 2 * wanted >= count:
        return torch.randperm(count, device=device)[:wanted]
    drawn = torch.empty(0, dtype=torch.long, device=device)
    while True:
        drawn = torch.cat([drawn, torch.randint(count, (wanted + wanted // 2 + 8,), device=device)])
        ordered, places = drawn.sort(stable=True)
        new = torch.ones_like(ordered, dtype=torch.bool)
        new[1:] = ordered[1:] != ordered[:-1]
        first = places[new].sort().values  # where each number was drawn first
        if len(first) >= wanted:
            return drawn[first[:wanted]]
