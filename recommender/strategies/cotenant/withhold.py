"""Why a value is not proposed: the first reason that applies, or OK. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import Reason
from cotenant.base.usage.plausible import beyond_any_node
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.settings import CotenantSettings
from cotenant.recommender.strategies.cotenant import jobs
from cotenant.recommender.strategies.cotenant.demand import ResourceDemand
from cotenant.recommender.strategies.cotenant.policy import Policy

MINIMUM_RUNS: Final = 3
"""Runs of a job that do instead of the days. Three runs are the least of which one may be an exception."""


def reasons(
    evidence: Evidence, demand: ResourceDemand, policies: Sequence[Policy], own: CotenantSettings
) -> list[Reason]:
    """Return why each container's value is withheld, or OK; a raise after an OOM kill needs no minimum history."""
    resource = demand.resource
    present = np.fmax(evidence.requests[resource], evidence.limits[resource])
    most = np.array([p.bounds[resource][1] or np.inf for p in policies])
    urgent = np.isfinite(demand.urgent) & ~((demand.urgent <= present) | (most < present))
    episodic = jobs.episodic(evidence)
    short = (demand.span_days < own.minimum_days) & ~(episodic & (demand.runs >= MINIMUM_RUNS))
    refs = [workload.ref for workload in evidence.workloads]
    excluded = (c.container in p.excluded or p.skip for c, p in zip(evidence.containers, policies, strict=True))
    # Best effort by its label, without a request or limit anywhere.
    asks_nothing = (
        p.keep_qos_class and w.qos is QosClass.BE and not any(c.requests or c.limits for c in w.containers)
        for w, p in zip(evidence.workloads, policies, strict=True)
    )
    cases = {
        Reason.EXCLUDED: _flags(excluded),
        Reason.NO_DATA: ~np.isfinite(demand.wanted),
        Reason.IMPLAUSIBLE: beyond_any_node(demand.highest, refs, evidence.inventory, resource),
        Reason.BEST_EFFORT: _flags(asks_nothing),
        Reason.NOT_ENOUGH_HISTORY: short & ~urgent,
        Reason.LOW_COVERAGE: ~(demand.coverage >= own.minimum_coverage) & ~(urgent | episodic),
    }
    names = [*cases, Reason.OK]
    return [names[i] for i in np.select(list(cases.values()), range(len(cases)), default=len(cases))]


def _flags(values: object) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(list(values), dtype=np.bool_)  # type: ignore[call-overload]
