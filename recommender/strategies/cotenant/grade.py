"""How much a proposed value matters: critical for risk or a very large saving, the rest by share and amount. Pure.

The thresholds are settings (`recommender.cotenant.severity`), the rule is described there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cotenant.core.model.recommendation import Field, Severity
from cotenant.core.model.resource import Resource
from cotenant.core.settings.sections.recommender import SeveritySettings
from recommender.evidence import Evidence
from recommender.strategies.cotenant.demand import ResourceDemand

CPU = Resource.CPU


@dataclass(frozen=True, slots=True)
class GradedChange:
    """A value as it is graded; amounts in the unit, None = not set."""

    resource: Resource
    field: Field
    now: int | None
    amount: int | None
    replicas: int
    risk: bool = False


@dataclass(frozen=True, slots=True)
class Grades:
    """The settings' thresholds for a cluster that requests `totals` over all replicas."""

    steps: SeveritySettings
    totals: Mapping[Resource, float]

    def of(self, change: GradedChange) -> Severity:
        """The severity of one value."""
        now, amount = change.now, change.amount
        if now is None or amount is None:
            return Severity.GOOD if now is amount or change.field is Field.LIMIT else Severity.WARNING
        if change.risk and amount > now:
            return Severity.CRITICAL
        if change.field is Field.LIMIT and amount <= now:
            return Severity.GOOD
        share = abs(amount - now) / max(amount, now, 1)
        return self._by_size(change.resource, share, abs(amount - now) * max(change.replicas, 1), amount < now)

    def _by_size(self, resource: Resource, share: float, total: int, saves: bool) -> Severity:
        s = self.steps
        warning, ok = (s.warning_millicores, s.ok_millicores) if resource is CPU else (s.warning_bytes, s.ok_bytes)
        largest = max(s.critical_cluster_share * self.totals[resource], warning)
        if saves and share >= s.critical_change and total >= largest:
            return Severity.CRITICAL
        if share >= s.warning_change and total >= warning:
            return Severity.WARNING
        return Severity.OK if share >= s.ok_change and total >= ok else Severity.GOOD


def grades_of(evidence: Evidence, steps: SeveritySettings) -> Grades:
    """Thresholds for this evidence's cluster."""
    replicas = np.array([max(evidence.replicas(i), 1) for i in range(len(evidence))], dtype=np.float64)
    return Grades(steps, {r: float(np.nansum(evidence.requests[r] * replicas)) for r in Resource})


def at_risk(evidence: Evidence, demand: ResourceDemand, index: int, steps: SeveritySettings) -> bool:
    """Whether the present value already hurts: killed or beyond the request; starved of CPU by its limit."""
    request = float(evidence.requests[demand.resource][index])
    if demand.resource is CPU:
        starved = demand.throttled_share[index] >= steps.throttled_share
        return bool(starved and demand.high[index] > request)
    limit = float(np.fmax(evidence.limits[demand.resource][index], request))
    killed = demand.urgent[index] > limit
    return bool(killed or (demand.highest[index] > request and demand.wanted[index] > limit))
