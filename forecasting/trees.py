"""Gradient-boosted regression trees for several quantiles at once, in whole columns. Pure and deterministic.

Every tree serves all levels: its questions are those that explain most of the pinball loss of all of them together, and
a leaf holds one step a level (Friedman 2001, with the leaves' own quantiles as steps). Features are held in bins; for
every level, the loss falls by the squared sum of gradients of the rows on each side of a question, and as a row's
gradients follow from how many predicted quantiles it lies below, counts of rows by bin and that number give all sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forecasting.base import Array
from forecasting.empirical import row_quantiles

Floats = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.intp]

DEPTH: Final = 4
"""Questions on the way to a leaf."""
FEWEST_IN_LEAF: Final = 30
"""Rows, of those that decide."""
_TREES, _RATE, _BINS = 20, 0.15, 32
_PARTS: Final = 2
"""Rows are dealt out to so many parts, which decide in turn what trees ask; the steps of leaves follow from all."""
_ROWS_PER_BLOCK: Final = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """A base value a level and a sum of trees, whose nodes ask whether a feature is above a bound.

    base (levels,); features, bounds (trees, 2**DEPTH - 1): column and bound of each node, the children of node i at
    2 i + 1 (not above) and 2 i + 2; leaves (trees, 2**DEPTH, levels).
    """

    base: Array
    features: npt.NDArray[np.int16]
    bounds: Array
    leaves: Array

    def predict(self, rows: Array) -> Array:
        """Value at each level for rows (n, features), finite: (n, levels)."""
        answer = np.repeat(self.base[None], len(rows), axis=0)
        for first in range(0, len(rows), _ROWS_PER_BLOCK):
            some = slice(first, first + _ROWS_PER_BLOCK)
            columns = np.ascontiguousarray(rows[some].T)
            for features, bounds, leaves in zip(self.features, self.bounds, self.leaves, strict=True):
                answer[some] += leaves[_leaf_of(columns, features, bounds)]
        return answer


def _leaf_of(columns: npt.NDArray[Any], features: npt.NDArray[np.int16], bounds: npt.NDArray[Any]) -> Places:
    """Number of the leaf that each row of columns (features, n) comes to, (n,)."""
    every = np.arange(columns.shape[1])
    node = np.zeros(columns.shape[1], dtype=np.intp)
    for _ in range(DEPTH):
        node += node + 1 + (columns[features[node], every] > bounds[node])
    return node - len(bounds)


def grow(rows: Array, targets: Array, levels: Floats) -> Trees:
    """Trees for the quantiles of targets (n,) at rising levels, from rows (n, features), finite."""
    borders = row_quantiles(rows.T, np.arange(1, _BINS) / _BINS)
    bins = np.stack([np.searchsorted(of, column) for of, column in zip(borders, rows.T, strict=True)])
    base = row_quantiles(targets[None], levels)[0]
    predicted = np.repeat(base[:, None], len(targets), axis=1)
    grown = []
    for number in range(_TREES):
        some = slice(number % _PARTS, None, _PARTS)
        features, above = _questions(bins[:, some], (targets[some] <= predicted[:, some]).sum(axis=0), levels)
        leaf = _leaf_of(bins, features, above)
        leaves = _steps(targets - predicted, leaf, levels)
        predicted += leaves.T[:, leaf]
        bounds = np.where(above < _BINS - 1, borders[features, np.minimum(above, _BINS - 2)], np.float32(np.inf))
        grown.append((features, bounds, leaves))
    return Trees(base, *(np.stack(part) for part in zip(*grown, strict=True)))


def _questions(bins: Places, below: Places, levels: Floats) -> tuple[npt.NDArray[np.int16], Places]:
    """Feature and last bin of the lower side of each node, from bins (features, n), level of the tree by level.

    below (n,): of how many predicted quantiles a row is not above. A node that nothing divides sends all one way.
    """
    count, size = len(bins), len(levels) + 1
    # d loss / d prediction: 1 - level where the row is below, else -level; it is below the highest levels
    gradient = (np.arange(len(levels)) >= len(levels) - np.arange(size)[:, None]) - levels
    cells = (np.arange(count)[:, None] * _BINS + bins) * size + below
    node, every = np.zeros(bins.shape[1], dtype=np.intp), np.arange(bins.shape[1])
    features, above = [], []
    for depth in range(DEPTH):
        shape = (2**depth, count, _BINS, size)
        counts = np.bincount((cells + node * (count * _BINS * size)).ravel(), minlength=int(np.prod(shape)))
        lower = counts.reshape(shape).cumsum(axis=2)
        upper = lower[:, :, -1:] - lower
        sides = [((side @ gradient) ** 2).sum(axis=3) / np.maximum(side.sum(axis=3), 1) for side in (lower, upper)]
        enough = np.minimum(lower.sum(axis=3), upper.sum(axis=3)) >= FEWEST_IN_LEAF
        gain = np.where(enough, sides[0] + sides[1], -1.0).reshape(2**depth, -1)
        best = gain.argmax(axis=1)
        divided = gain.max(axis=1) >= 0
        features.append((best // _BINS).astype(np.int16))
        above.append(np.where(divided, best % _BINS, _BINS - 1))
        node = 2 * node + (bins[features[-1][node], every] > above[-1][node])
    return np.concatenate(features), np.concatenate(above)


def _steps(away: Array, leaf: Places, levels: Floats) -> Array:
    """What each leaf adds: _RATE x the quantile of what is left, (levels, n), in it; (2**DEPTH, levels), 0 if empty."""
    order = np.argsort(leaf, kind="stable")
    steps = np.zeros((2**DEPTH, len(levels)), dtype=np.float32)
    places = np.searchsorted(leaf[order], np.arange(2**DEPTH + 1))
    for number, (first, after) in enumerate(pairwise(places.tolist())):
        if after > first:
            steps[number] = _RATE * np.diagonal(row_quantiles(away[:, order[first:after]], levels))
    return steps
