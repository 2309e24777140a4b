"""Pods that came to a node and pods that left it, against what the node's history knows. Pure.

A place is a workload on a node. A node's total goes on when a pod takes the place of another, so only the pods that
came beyond those that left can use more than the total's forecast says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource

Floats = npt.NDArray[np.float64]

Place = tuple[str, WorkloadRef]
"""Name of a node, workload."""


@dataclass(frozen=True, slots=True)
class PodCensus:
    """Prod pods that the forecast of each node's peak knows.

    time_seconds: Unix time up to which the forecast knows them; a pod that started later is not in it. pods: those of a
    place that ran then, and those that left it in the day before and were not replaced. usual: by resource and node,
    requests of the young pods that usually come beyond replacement and were not there then.
    """

    time_seconds: float
    pods: Mapping[Place, int]
    usual: Mapping[Resource, Mapping[str, float]] = field(default_factory=dict)


def unreplaced_requests(came: npt.NDArray[Any], went: npt.NDArray[Any], requested: npt.NDArray[Any]) -> Floats:
    """Requests of pods that came to each place beyond as many as left it, (places,), in the unit of `requested`.

    came, went: counts; requested: sum of the requests of those that came. Which of them replaced another is not known,
    so each counts with the mean request.
    """
    share = np.maximum(came - went, 0) / np.maximum(came, 1)  # divided first, so that rounding makes no more of it
    beyond: Floats = requested * share
    return beyond
