"""One page per file (Home has its own folder); `ALL` has them in order, place by place of the navigation."""

from __future__ import annotations

from typing import Final

from cotenant.dashboard.frame.view import Page
from cotenant.dashboard.home import overview
from cotenant.dashboard.pages import (
    autopilot,
    batch,
    changes,
    cluster_size,
    enforcement,
    findings,
    forecast,
    health,
    nodes,
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
    recommendations.PAGE,
    findings.PAGE,
    changes.PAGE,
    autopilot.PAGE,
    batch.PAGE,
    what_if.PAGE,
    enforcement.PAGE,
    reservations.PAGE,
    forecast.PAGE,
    queues.PAGE,
    rebalance.PAGE,
    cluster_size.PAGE,
    workloads.PAGE,
    portrait.PAGE,
    workloads.POD_PAGE,
    nodes.PAGE,
    health.PAGE,
)
