"""What ranks the entries of an index: the vectors in memory, or a backend that searches where they are stored."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from diptych.data.corpus import Floats, Integers
from diptych.index.entries import Filters, Kind, Method
from diptych.index.exact import RankedRows


class EntryPool(Protocol):
    """Entries of one kind that pass the filters; a row stands for one of them."""

    @property
    def method(self) -> Method:
        """How `top` finds the best rows."""
        ...

    @property
    def reachable(self) -> int:
        """The number of entries that a ranking can name; `top` may return fewer rows than that."""
        ...

    @property
    def sampled(self) -> Floats:
        """The vectors of some of the entries: (entries, size)."""
        ...

    def __len__(self) -> int:
        """The number of entries."""
        ...

    def ids_of(self, rows: Integers) -> Integers:
        """The ids of the entries of some rows; of two rows, the lower one has the lower id."""
        ...

    def vectors_of(self, rows: Integers) -> Floats:
        """The vectors of some rows: (rows, size)."""
        ...

    def top(self, queries: Floats, k: int, cosine: bool = False) -> list[RankedRows]:
        """The k best entries of each query, (queries, size), by inner product, or by cosine.

        Fewer are returned if there are no more, or if an approximate search does not find more.
        """
        ...


@runtime_checkable
class SearchingStore(Protocol):
    """What a store also has if its backend searches by itself, so that the vectors need not be loaded."""

    def pool(self, kind: Kind, filters: Filters) -> EntryPool:
        """The entries of a kind that pass the filters, at the present generation."""
        ...
