"""One page per file; `ALL` is their order in the navigation."""

from __future__ import annotations

from typing import Final

from cotenant.dashboard.frame.view import Page
from cotenant.dashboard.pages import (
    autopilot,
    batch,
    changes,
    enforcement,
    findings,
    forecast,
    health,
    nodes,
    overview,
    pods,
    portrait,
    queues,
    rebalance,
    recommendations,
    reservations,
    what_if,
    workloads,
)

ALL: Final[tuple[Page, ...]] = (
    overview.PAGE,
    workloads.PAGE,
    portrait.PAGE,
    recommendations.PAGE,
    changes.PAGE,
    autopilot.PAGE,
    nodes.PAGE,
    pods.PAGE,
    forecast.PAGE,
    reservations.PAGE,
    queues.PAGE,
    rebalance.PAGE,
    batch.PAGE,
    what_if.PAGE,
    enforcement.PAGE,
    findings.PAGE,
    health.PAGE,
)
