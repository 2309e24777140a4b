"""Samples of nodes on a regular time grid, and the aggregates of the samples that NodeMetric publishes. Pure.

Percentiles are nearest-rank: the ceil(p x n)-th smallest of n samples, so that each is a measured value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PERCENTILES: Final[tuple[tuple[str, int], ...]] = (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99))
KINDS: Final[tuple[str, ...]] = ("avg", *(name for name, _ in PERCENTILES))
"""Order of the last axis of `aggregate_rows`."""


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """Samples of nodes every `step_seconds` up to `end_seconds`; `values` is (nodes, samples), NaN = no sample."""

    nodes: tuple[str, ...]
    end_seconds: int
    step_seconds: int
    values: Floats

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.values) != len(self.nodes):
            raise ValueError(f"values of shape {self.values.shape} do not have {len(self.nodes)} rows, one per node")

    def last(self, duration_seconds: int) -> Floats:
        """Return the samples of the last `duration_seconds`, (nodes, samples)."""
        count = max(1, duration_seconds // self.step_seconds)
        return self.values[:, -count:]

    def of(self, nodes: Sequence[str]) -> Track:
        """Return the samples of these nodes, in this order; NaN for a node without samples."""
        if tuple(nodes) == self.nodes:
            return self
        row = {name: i for i, name in enumerate(self.nodes)}
        padded = np.vstack((self.values, np.full((1, self.values.shape[1]), np.nan)))
        picked = np.fromiter((row.get(n, len(self.nodes)) for n in nodes), dtype=np.intp, count=len(nodes))
        return Track(tuple(nodes), self.end_seconds, self.step_seconds, padded[picked])

    def followed_by(self, newer: Track, keep_seconds: int) -> Track:
        """Join these samples with newer ones, keep the last `keep_seconds`, and prefer the newer ones where both exist.

        A node without remaining samples is dropped. Raise ValueError if the grids do not match.
        """
        shift_seconds = newer.end_seconds - self.end_seconds
        if newer.step_seconds != self.step_seconds or shift_seconds % self.step_seconds:
            raise ValueError("the tracks have different time grids")
        nodes = tuple(sorted({*self.nodes, *newer.nodes}))
        count = keep_seconds // self.step_seconds
        old = _align_columns(self.of(nodes).values, count, shift_seconds // self.step_seconds)
        new = _align_columns(newer.of(nodes).values, count, 0)
        values = np.where(np.isfinite(new), new, old)
        sampled = np.flatnonzero(np.isfinite(values).any(axis=1))
        names = tuple(nodes[i] for i in sampled)
        return Track(names, newer.end_seconds, self.step_seconds, values[sampled])


def _align_columns(values: Floats, count: int, before: int) -> Floats:
    """Return the last `count` columns of a grid that ends `before` columns after the values."""
    out = np.full((len(values), count), np.nan)
    if 0 <= before < count:
        size = min(count - before, values.shape[1])
        out[:, count - before - size : count - before] = values[:, values.shape[1] - size :]
    return out


def mean(values: Floats) -> Floats:
    """Return the mean of each row of a matrix; NaN for a row without samples."""
    present = np.isfinite(values)
    total = np.where(present, values, 0.0).sum(axis=1)
    return np.where(present.any(axis=1), total / np.maximum(present.sum(axis=1), 1), np.nan)


def aggregate_rows(values: Floats) -> Floats:
    """Return average and percentiles of each row, (rows, 5) in the order of KINDS; NaN for a row without samples."""
    ordered = np.sort(values, axis=1)  # NaN last
    counts = np.isfinite(values).sum(axis=1)
    percents = np.array([percent for _, percent in PERCENTILES])
    # Whole numbers: a product of fractions may fall a hair above the rank and count one too many.
    ranks = -(-counts[:, None] * percents[None, :] // 100)
    picked = np.take_along_axis(ordered, np.maximum(ranks - 1, 0), axis=1)
    picked = np.where(counts[:, None] > 0, picked, np.nan)
    return np.hstack((mean(values)[:, None], picked))


def spans(values: Floats, step_seconds: int, duration_seconds: int) -> npt.NDArray[np.bool_]:
    """Return for each row whether its samples span more than half of the duration, from first to last."""
    present = np.isfinite(values)
    first = present.argmax(axis=1)
    final = values.shape[1] - 1 - present[:, ::-1].argmax(axis=1)
    span_seconds = (final - first) * step_seconds
    return np.asarray(present.any(axis=1) & (2 * span_seconds > duration_seconds))
