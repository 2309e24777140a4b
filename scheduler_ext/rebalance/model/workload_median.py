"""Median forecasts of workloads, which rounds of rebalancing look ahead with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource


class WorkloadMedian(msgspec.Struct, frozen=True, array_like=True):
    """Median of what all pods of a workload use in each half hour from start_seconds on, in the resources' units.

    replicas: how many its autoscaler will run in each of them; empty without an autoscaler.
    """

    namespace: str
    kind: str
    name: str
    start_seconds: int
    median: dict[Resource, list[int]]
    replicas: list[int] = []

    @property
    def ref(self) -> WorkloadRef:
        """Return the reference of the workload."""
        return WorkloadRef(self.namespace, self.kind, self.name)


class MedianResults(Protocol):
    """The part of a pipeline run that rebalancing reads."""

    @property
    def workload_medians(self) -> Sequence[WorkloadMedian]:
        """One per workload with a forecast."""
