"""Peaks of prod's use of nodes as a run of the pipeline hands them to the colocation controller, and what they know.

A place is a workload on a node. A node's total goes on when a pod takes the place of another, so only the pods that
came beyond those that left can use more than the total's forecast says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource


class ProdPeak(msgspec.Struct, frozen=True):
    """Calibrated 24-hour peak of prod's use of one node, in the resource's unit, and how such forecasts did.

    violation: share of back-tested decisions whose peak was passed; None = not measured; origins: days of them;
    system: peak of what runs outside of pods; None = not known; mid: highest use of pods above batch but not prod's.
    """

    peak: float
    violation: float | None
    origins: int
    system: float | None = None
    mid: float = 0.0


class PlacedPods(msgspec.Struct, frozen=True, array_like=True):
    """Prod pods of one workload on one node that the forecast of the node's peak knows."""

    node: str
    namespace: str
    kind: str
    name: str
    count: int


class StoredCensus(msgspec.Struct, frozen=True):
    """A `PodCensus` for sending: later pods are compared with it."""

    time_seconds: int
    places: tuple[PlacedPods, ...] = ()
    usual: dict[Resource, dict[str, float]] = {}

    @classmethod
    def of(cls, census: PodCensus) -> StoredCensus:
        """Places in the order of their names."""
        rows = sorted((node, ref, count) for (node, ref), count in census.pods.items())
        places = tuple(PlacedPods(node, ref.namespace, ref.kind, ref.name, count) for node, ref, count in rows)
        return cls(int(census.time_seconds), places, {r: dict(amounts) for r, amounts in census.usual.items()})

    @property
    def census(self) -> PodCensus:
        """Return the census with its counts by (node, workload)."""
        pods = {(p.node, WorkloadRef(p.namespace, p.kind, p.name)): p.count for p in self.places}
        return PodCensus(self.time_seconds, pods, self.usual)


class PeakResults(Protocol):
    """The part of a pipeline run that the policy `forecast` rests on."""

    @property
    def computed_seconds(self) -> int:
        """Time at which the run ended, seconds since the epoch."""

    @property
    def prod_peaks(self) -> Mapping[Resource, Mapping[str, ProdPeak]]:
        """Peak of prod's use of each node, by resource and node name."""

    @property
    def prod_census(self) -> StoredCensus | None:
        """The pods that the peaks know; None where no peak was computed."""


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
