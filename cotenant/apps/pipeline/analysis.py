"""The messages of all stages of one run, before they are written or shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.core.model.cluster import Inventory
from cotenant.core.model.colocation.reclaimable import Reclaimable
from cotenant.core.model.finding import ClusterFinding
from cotenant.core.model.identity import ClusterRef, NodeRef, PodContainerRef, WorkloadRef
from cotenant.core.model.recommendation import Recommendation
from cotenant.core.model.reservations.plan import Proposal
from cotenant.core.model.resource import Resource
from cotenant.core.model.sparse_usage import AnyUsage
from cotenant.core.model.usage.forecast import Forecasts
from cotenant.core.model.usage.portrait import Portraits
from cotenant.core.model.usage.quality import QualityRecord
from cotenant.core.model.usage.usage import Signal, TimeGrid, Usage
from cotenant.core.model.usage.week import WeekDecomposition, Weeks
from forecasting.node_peak import NodePeaks
from recommender.replicas import ReplicaFloor


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What the store holds for one window: usage by signal, the inventory, the last pull's account."""

    inventory: Inventory
    window: TimeGrid
    usage: Mapping[Signal, AnyUsage[PodContainerRef]]
    node_usage: Mapping[Signal, Usage[NodeRef]]
    quality: QualityRecord | None

    @property
    def unread_seconds(self) -> Mapping[Signal, int]:
        """Time that a signal's source failed to answer for; empty where all was read."""
        return self.quality.unread_seconds if self.quality else {}


@dataclass(frozen=True, slots=True, eq=False)
class PodTotals:
    """5-minute sums of each node's pods, rows alike.

    prod: of prod and pods without a class; high: of all whose use is never lent; pods: of all.
    """

    prod: Usage[NodeRef]
    high: Usage[NodeRef]
    pods: Usage[NodeRef]


@dataclass(frozen=True, slots=True, eq=False)
class WeekAnalysis:
    """Weeks of some series, and the parts of those whose past could be taken apart."""

    weeks: Weeks[Any]
    parts: Mapping[Any, WeekDecomposition]


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """The result of one run. Totals are 5-minute sums over a workload's pods, rows in the order of `workloads`."""

    history: History
    workloads: tuple[WorkloadRef, ...]
    totals: Mapping[Signal, Usage[WorkloadRef]]
    cluster_totals: Mapping[Resource, Usage[ClusterRef]]
    pod_totals: Mapping[Resource, PodTotals]
    portraits: Mapping[Resource, Portraits[WorkloadRef]]
    forecasts: Mapping[Resource, Forecasts[WorkloadRef]]
    node_forecasts: Mapping[Resource, Forecasts[NodeRef]]
    prod_forecasts: Mapping[Resource, Forecasts[NodeRef]]
    """Of what prod pods, and pods without a class, use together on each node."""

    prod_peaks: Mapping[Resource, NodePeaks[NodeRef]]
    """The highest use of them in the next 24 hours, at the risk of the settings."""

    cluster_forecasts: Mapping[Resource, Forecasts[ClusterRef]]
    reclaimable: tuple[Reclaimable, ...]
    recommendations: tuple[Recommendation, ...]
    findings: tuple[ClusterFinding, ...]
    settings_digest: str
    computed_seconds: int
    replica_floors: tuple[ReplicaFloor, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    """Proposed reservations for the next peaks, with a reason where nothing is proposed."""

    weeks: tuple[WeekAnalysis, ...] = ()
    """The week ahead of the cluster and the largest workloads."""
