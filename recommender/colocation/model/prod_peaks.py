"""Peaks of prod's usage of nodes, and the pods that they include, as the pipeline passes them to the controller.

A place is a workload on a node. A node's total does not change when one pod replaces another, so only pods that came
beyond those that left can use more than the forecast of the total.
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
    """The calibrated 24-hour peak of prod's usage of one node, in the resource's unit, and the error of earlier peaks.

    `violation` is the share of back-tested decisions whose peak was exceeded, None = not measured; `origins` is the
    number of back-tested days; `system` is the peak of usage outside of pods, None = not known; `mid` is the highest
    usage of mid pods.
    """

    peak: float
    violation: float | None
    origins: int
    system: float | None = None
    mid: float = 0.0


class PlacedPods(msgspec.Struct, frozen=True, array_like=True):
    """The number of prod pods of one workload on one node that the forecast of the node's peak includes."""

    node: str
    namespace: str
    kind: str
    name: str
    count: int


class StoredCensus(msgspec.Struct, frozen=True):
    """A census of prod pods (`PodCensus`) in serializable form; later pods are compared with it."""

    time_seconds: int
    places: tuple[PlacedPods, ...] = ()
    usual: dict[Resource, dict[str, float]] = {}

    @classmethod
    def of(cls, census: PodCensus) -> StoredCensus:
        """Return the serializable form of a census, with the names of nodes and workloads sorted."""
        rows = sorted((node, ref, count) for (node, ref), count in census.pods.items())
        places = tuple(PlacedPods(node, ref.namespace, ref.kind, ref.name, count) for node, ref, count in rows)
        return cls(int(census.time_seconds), places, {r: dict(amounts) for r, amounts in census.usual.items()})

    @property
    def census(self) -> PodCensus:
        """The census with its counts by (node, workload)."""
        pods = {(p.node, WorkloadRef(p.namespace, p.kind, p.name)): p.count for p in self.places}
        return PodCensus(self.time_seconds, pods, self.usual)


class PeakResults(Protocol):
    """The part of a pipeline run that the policy `forecast` needs."""

    @property
    def computed_seconds(self) -> int:
        """Time at which the run ended, seconds since the epoch."""

    @property
    def prod_peaks(self) -> Mapping[Resource, Mapping[str, ProdPeak]]:
        """Peak of prod's usage of each node, by resource and node name."""

    @property
    def prod_census(self) -> StoredCensus | None:
        """The pods that the peaks include; None if no peak was computed."""


Floats = npt.NDArray[np.float64]
Place = tuple[str, WorkloadRef]
"""Name of a node, workload."""


@dataclass(frozen=True, slots=True)
class PodCensus:
    """The prod pods that the forecast of each node's peak includes.

    `time_seconds` is the Unix time of the census: pods that started later are not included. `pods` counts by place
    (workload on a node) the pods that ran then and those that left in the day before without a replacement. `usual` is,
    by resource and node, how far the mean requests of young pods that replaced no other exceed those at the census.
    """

    time_seconds: float
    pods: Mapping[Place, int]
    usual: Mapping[Resource, Mapping[str, float]] = field(default_factory=dict)


def unreplaced_requests(came: npt.NDArray[Any], went: npt.NDArray[Any], requested: npt.NDArray[Any]) -> Floats:
    """Return for each place (workload on a node) the requests of new pods that replaced no pod that left.

    `came` and `went` count the pods of each place; `requested` sums the requests of those that came, in the unit of the
    result. Which pod replaced which is not known, so each one counts with the mean request.
    """
    share = np.maximum(came - went, 0) / np.maximum(came, 1)  # divided first, so that rounding makes no more of it
    beyond: Floats = requested * share
    return beyond
