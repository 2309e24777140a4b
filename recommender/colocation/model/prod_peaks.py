"""Peaks of prod's use of nodes as a run of the pipeline hands them to the colocation controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.model.pod_turnover import PodCensus


class ProdPeak(msgspec.Struct, frozen=True):
    """Calibrated 24-hour peak of prod's use of one node, in the resource's unit, and how such forecasts did.

    violation: share of back-tested decisions whose peak was passed; None = not measured; origins: days of them;
    system: peak of what runs outside of pods; None = not known; mid: highest use of the pods above batch that are not
    prod's.
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
