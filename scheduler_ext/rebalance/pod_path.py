"""What a pod is expected to use over the next day, where only its node has a forecast. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotenant.core.model.kubernetes.protocol import PREDICTED_USAGE_ANNOTATION
from scheduler_ext.rebalance.classification import DAY_STEPS, LoadTable
from scheduler_ext.rebalance.load import RebalancePod

Floats = npt.NDArray[np.float64]


def pod_path(table: LoadTable, pod: RebalancePod, present: tuple[int, Floats], *, with_forecast: bool) -> Floats:
    """Usage in each half hour from the present one on, (DAY_STEPS + 1, 2): the pod grows as its node does.

    present: (row of its node, usage now). The first row is what it uses now. Without a forecast it stays at that. A
    peak that an annotation predicts is not undercut at any later time.
    """
    row, usage = present
    growth = np.full((DAY_STEPS + 1, 2), np.nan)
    if with_forecast:
        growth = table.ahead[:, row] / np.where(table.usage[row] > 0, table.usage[row], np.nan)
    path: Floats = usage * np.where(np.isfinite(growth), growth, 1.0)
    if PREDICTED_USAGE_ANNOTATION in pod.facts.identity.annotations:
        path = np.maximum(path, np.array(pod.facts.predicted))
    path[0] = usage
    return path
