"""Severity: how much a proposed value matters, by KRR's absolute rule or by cotenant's. Pure; used by every strategy.

A withheld value has severity UNKNOWN (`Value`'s default); these rules grade the other values.

KRR grades the absolute difference alone: 0.4 core of a 100-core job weighs as much as 0.4 core of a 0.5-core one.
cotenant requires both: a change that is large for this container (relative) and large for the cluster (all replicas).
Only danger is critical (`danger_alone`); how much of a request is not needed has its own scale (`waste`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cotenant.base.resource import MIB, Resource
from cotenant.base.severity import Severity, Waste
from cotenant.recommender.model.recommendation import Action, Value

CRITICAL_CLUSTER_SHARE: Final = 0.003
"""Large waste: over all pods, as a share of all that the cluster requests. Grade of a word on the page; it changes
no amount, and grades stay comparable between clusters."""
CRITICAL_CHANGE: Final = 0.5
"""Large waste: share of the present value. Grade of a word on the page; it changes no amount, and grades stay
comparable between clusters."""
WARNING_CHANGE: Final = 0.4
"""Share of the present value that changes. Grade of a word on the page; it changes no amount, and grades stay
comparable between clusters."""
WARNING_MILLICORES: Final = 1000
"""CPU over all replicas. One core: what a person notices on a bill."""
WARNING_BYTES: Final = 2048 * 1024**2
"""Memory over all replicas. Two GiB: what a person notices on a bill."""
OK_CHANGE: Final = 0.1
"""Share of the present value that changes. The dead band: below it nothing is proposed."""
OK_MILLICORES: Final = 100
"""CPU over all replicas. A tenth of a core: below it nobody acts."""
OK_BYTES: Final = 128 * 1024**2
"""Memory over all replicas. An eighth of a GiB: below it nobody acts."""

KRR_STEPS: Final = {
    Resource.CPU: ((500, Severity.CRITICAL), (250, Severity.WARNING), (100, Severity.OK)),
    Resource.MEMORY: ((500 * MIB, Severity.CRITICAL), (250 * MIB, Severity.WARNING), (100 * MIB, Severity.OK)),
}
"""Smallest absolute difference of each level, millicores and bytes."""
RELATIVE_STEPS: Final = {Severity.CRITICAL: 0.5, Severity.WARNING: 0.25, Severity.OK: 0.1}
"""Smallest change relative to the larger of the two values that a level of ours needs beside KRR's steps."""


def absolute_severity(resource: Resource, now: int | None, amount: int | None) -> Severity:
    """Return KRR's severity, by |amount - now|; a warning if exactly one of the two amounts is unset."""
    if now is None or amount is None:
        return Severity.GOOD if now is amount else Severity.WARNING
    difference = abs(amount - now)
    return next((level for least, level in KRR_STEPS[resource] if difference >= least), Severity.GOOD)


def severity(resource: Resource, now: int | None, amount: int | None, replicas: int) -> Severity:
    """Return the highest severity whose two thresholds a change reaches: an amount over all replicas, and a ratio."""
    if now is None or amount is None:
        return absolute_severity(resource, now, amount)
    difference, ratio = abs(amount - now), abs(amount - now) / max(amount, now, 1)
    total = difference * max(replicas, 1)
    reached = (level for least, level in KRR_STEPS[resource] if total >= least and ratio >= RELATIVE_STEPS[level])
    return next(reached, Severity.GOOD)


def danger_alone(value: Value) -> Value:
    """Return the value, graded as a warning if it is critical but only lowers an amount: that is waste, not danger."""
    falls = value.action is Action.UNSET or (value.change is not None and value.change < 0)
    return replace(value, severity=Severity.WARNING) if falls and value.severity is Severity.CRITICAL else value


def waste(resource: Resource, before: float, freed: float, requested: float) -> Waste:
    """Return the waste level of a container's request over all pods, by the unneeded share and amount.

    `before` is the container's request, `freed` what the proposal frees of it, `requested` what the cluster requests,
    each over all pods in the resource's unit. LARGE also requires a minimum share of the cluster's requests.
    """
    is_cpu = resource is Resource.CPU
    medium, small = (WARNING_MILLICORES, OK_MILLICORES) if is_cpu else (WARNING_BYTES, OK_BYTES)
    share = freed / before if before > 0 else 0.0
    levels = (
        (Waste.LARGE, CRITICAL_CHANGE, max(CRITICAL_CLUSTER_SHARE * requested, medium)),
        (Waste.MEDIUM, WARNING_CHANGE, medium),
        (Waste.SMALL, OK_CHANGE, small),
    )
    reached = (word for word, least_share, least in levels if freed > 0 and share >= least_share and freed >= least)
    return next(reached, Waste.NONE)


def limit_severity(resource: Resource, now: int | None, amount: int | None, replicas: int) -> Severity:
    """Return the severity of a limit's change: OK if it falls, since limits reserve no capacity; graded if it rises."""
    lower = now is not None and amount is not None and amount <= now
    return Severity.GOOD if lower else severity(resource, now, amount, replicas)
