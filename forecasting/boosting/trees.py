"""Sums of regression trees as plain arrays, predicted without the library that trained them. Pure.

A row passes every node of a tree at once: each node whose condition fails removes the leaves on its left, and the first
leaf that remains is the row's (QuickScorer, Lucchese et al. 2015). That takes a few operations on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import Floats
from cotenant.forecasting.base import Array

LEAVES: Final = 16
"""Most leaves of a tree: one bit each."""
_ALL: Final = 2**LEAVES - 1
_ROWS_PER_BLOCK: Final = 16_384
_FIRST_LEAF: Final = np.log2(np.arange(1, _ALL + 1) & -np.arange(1, _ALL + 1)).astype(np.uint8)
"""Number of the lowest set bit of 1, 2, ... _ALL."""


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Models that are each a base value and a sum of trees, whose nodes test whether a feature is <= a threshold.

    base (models,); features, thresholds, remaining (models, trees, LEAVES - 1): column, float32 bound, and the leaves
    that remain if the test fails; leaves (models, trees, LEAVES): values from left to right. A tree with fewer nodes
    ends in nodes that every row passes.
    """

    base: npt.NDArray[np.float64]
    features: npt.NDArray[np.int16]
    thresholds: Array
    remaining: npt.NDArray[np.uint16]
    leaves: npt.NDArray[np.float64]

    def predict(self, rows: Array) -> Floats:
        """Return an array (n, models): each model's value for each row of (n, features), which are finite float32."""
        answer = np.empty((len(rows), len(self.base)))
        for first in range(0, len(rows), _ROWS_PER_BLOCK):
            columns = np.ascontiguousarray(rows[first : first + _ROWS_PER_BLOCK].T)
            for model in range(len(self.base)):
                answer[first : first + _ROWS_PER_BLOCK, model] = self._of_model(model, columns)
        return answer

    def _of_model(self, model: int, columns: Array) -> Floats:
        value, surviving = np.full(columns.shape[1], self.base[model]), np.empty(columns.shape[1], dtype=np.uint16)
        for features, thresholds, remaining, leaves in zip(
            self.features[model].tolist(),
            self.thresholds[model],
            self.remaining[model],
            self.leaves[model],
            strict=True,
        ):
            leaves_left = np.full(columns.shape[1], _ALL, dtype=np.uint16)
            for feature, threshold, of_no in zip(features, thresholds, remaining, strict=True):
                if of_no != _ALL:
                    # arithmetic on whole columns: looking up each row's bits takes three times as long
                    np.multiply(columns[feature] <= threshold, _ALL ^ of_no, out=surviving)
                    surviving |= of_no
                    leaves_left &= surviving
            value += leaves[_FIRST_LEAF[leaves_left - 1]]
        return value


def of_models(models: Sequence[Any]) -> Trees:
    """Convert scikit-learn's HistGradientBoostingRegressors to plain arrays.

    The models must have the same number of trees, each with at most LEAVES leaves.
    """
    grown = [[_of_nodes(trees[0].nodes) for trees in model._predictors] for model in models]
    base = np.array([float(model._baseline_prediction.item()) for model in models])
    features, thresholds, remaining, leaves = (
        np.array([[tree[part] for tree in of_model] for of_model in grown]) for part in range(4)
    )
    return Trees(base, features, thresholds, remaining, leaves)


def _of_nodes(nodes: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
    """Convert one tree from scikit-learn's node records to features, thresholds, remaining leaves and values."""
    features = np.zeros(LEAVES - 1, dtype=np.int16)
    thresholds = np.full(LEAVES - 1, np.inf, dtype=np.float32)
    remaining = np.full(LEAVES - 1, _ALL, dtype=np.uint16)
    leaves = np.zeros(LEAVES)
    next_number = leaf_count = 0

    def visit(index: int) -> int:
        """Number the leaves below a node from left to right, and return their bits."""
        nonlocal next_number, leaf_count
        node = nodes[index]
        if node["is_leaf"]:
            leaves[leaf_count] = node["value"]
            leaf_count += 1
            return 1 << (leaf_count - 1)
        number, next_number = next_number, next_number + 1
        on_left = visit(int(node["left"]))
        # The highest float32 that is not above the threshold: the same float32 values are <= both.
        threshold, single = float(node["num_threshold"]), np.float32(node["num_threshold"])
        thresholds[number] = single if float(single) <= threshold else np.nextafter(single, np.float32(-np.inf))
        features[number] = node["feature_idx"]
        remaining[number] = _ALL & ~on_left
        return on_left | visit(int(node["right"]))

    visit(0)
    return features, thresholds, remaining, leaves
