"""Grades a proposed value: critical for danger only, other changes by share and amount. Pure.

The share of throttled demand that counts as a risk is a setting (`recommender.cotenant.severity`).
"""

from __future__ import annotations

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.settings import SeveritySettings
from cotenant.recommender.severity import (
    OK_BYTES,
    OK_CHANGE,
    OK_MILLICORES,
    WARNING_BYTES,
    WARNING_CHANGE,
    WARNING_MILLICORES,
)
from cotenant.recommender.strategies.cotenant.demand import ResourceDemand

CPU = Resource.CPU


def grade(
    resource: Resource, field: Field, now: int | None, amount: int | None, replicas: int, risk: bool = False
) -> Severity:
    """Return the severity of a change from `now` to `amount`, None = not set; `risk` = the present value does harm."""
    if now is None or amount is None:
        return Severity.GOOD if now is amount or field is Field.LIMIT else Severity.WARNING
    if risk and amount > now:
        return Severity.CRITICAL
    if field is Field.LIMIT and amount <= now:
        return Severity.GOOD
    share = abs(amount - now) / max(amount, now, 1)
    total = abs(amount - now) * max(replicas, 1)
    warning, ok = (WARNING_MILLICORES, OK_MILLICORES) if resource is CPU else (WARNING_BYTES, OK_BYTES)
    if share >= WARNING_CHANGE and total >= warning:
        return Severity.WARNING
    return Severity.OK if share >= OK_CHANGE and total >= ok else Severity.GOOD


def at_risk(evidence: Evidence, demand: ResourceDemand, index: int, steps: SeveritySettings) -> bool:
    """Return whether the present request or limit already causes harm.

    CPU: throttling takes at least the share in `steps`, and demand exceeds the request. Memory: the amount needed after
    OOM kills exceeds the limit, or usage exceeds the request and the wanted amount exceeds the limit.
    """
    request = float(evidence.effective_request(demand.resource)[index])
    if demand.resource is CPU:
        starved = demand.throttled_share[index] >= steps.throttled_share
        return bool(starved and demand.high[index] > request)
    limit = float(np.fmax(evidence.limits[demand.resource][index], request))
    killed = demand.urgent[index] > limit
    return bool(killed or (demand.highest[index] > request and demand.wanted[index] > limit))
