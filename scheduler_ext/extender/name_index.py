"""Find the rows of many names at once. Pure.

A dictionary touches four objects for each name, and while other programs use the processor each of them comes from
memory: for 500 names of 5,000 nodes that was a quarter of an answer's time. Here a name's 64-bit hash is looked up in
two small arrays. Python's hash is keyed anew in every process, so that an unknown name has a known one's hash neither
by chance nor by intent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.scheduler_ext.arrays import Rows

HASH_BITS: Final = 64
SPREAD_BITS: Final = 3  # eight buckets and more for each name, so that nearly all names are alone in theirs


class NameIndex:
    """An index from distinct names to their row numbers, built once for a set of nodes."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Build the index, which takes milliseconds for thousands of names."""
        hashes = _hashes(names)
        order = np.argsort(hashes)
        ranked = hashes[order]
        shared = bool((ranked[1:] == ranked[:-1]).any())
        self._one_by_one = {name: row for row, name in enumerate(names)} if shared else None
        bits = len(names).bit_length() + SPREAD_BITS
        self._shift = np.uint64(HASH_BITS - bits)
        self._first = np.searchsorted(ranked, np.arange(2**bits, dtype=np.uint64) << self._shift)
        # behind the last: larger than every hash that is looked for, and of no row
        self._ranked = np.append(ranked, np.iinfo(np.uint64).max)
        self._order = np.append(order, -1)

    def rows(self, names: Sequence[str]) -> Rows:
        """Return the row of each name, -1 if it is unknown; shape (names,)."""
        if self._one_by_one is not None:
            return np.array([self._one_by_one.get(name, -1) for name in names], dtype=np.intp)
        hashes = _hashes(names)
        at = self._first[hashes >> self._shift]
        while len(behind := np.flatnonzero(self._ranked[at] < hashes)):
            at[behind] += 1
        return np.where(self._ranked[at] == hashes, self._order[at], -1)


def _hashes(names: Sequence[str]) -> npt.NDArray[np.uint64]:
    return np.fromiter(map(hash, names), np.int64, len(names)).view(np.uint64)
