"""Where the series of each day stand among those of all days, worked out once for signals of the same series. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.store.days import Key, ref_of, rows

MOST_INDICES: Final = 4
"""Signals of usage have the same series, and those of requests, but for what a server lacks."""


@dataclass(frozen=True, slots=True, eq=False)
class SeriesIndex:
    """All keys of some days and their references, sorted, and the rows of each day's keys among them."""

    day_keys: tuple[tuple[Key, ...], ...]
    keys: tuple[Key, ...]
    refs: tuple[Any, ...]
    rows: tuple[npt.NDArray[np.intp], ...]


class SeriesIndices:
    """The series indices requested last, shared between threads.

    Equal references are the same object, which is compared and stored once.
    """

    def __init__(self) -> None:
        """Create an empty cache; nothing was requested yet."""
        self._latest: tuple[SeriesIndex, ...] = ()

    def of(self, day_keys: tuple[tuple[Key, ...], ...]) -> SeriesIndex:
        """The index of these days."""
        index = next((index for index in self._latest if index.day_keys == day_keys), None)
        if index is None:
            index = self._new(day_keys)
            self._latest = (*self._latest, index)[-MOST_INDICES:]
        return index

    def _new(self, day_keys: tuple[tuple[Key, ...], ...]) -> SeriesIndex:
        keys = tuple(sorted(set().union(*day_keys)))
        same = next((index for index in self._latest if index.keys == keys), None)
        refs = tuple(map(ref_of, keys)) if same is None else same.refs
        row = {key: i for i, key in enumerate(keys)}
        return SeriesIndex(day_keys, keys, refs, tuple(rows(row, of_day) for of_day in day_keys))
