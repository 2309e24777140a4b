"""One page per file; `ALL` is their order in the navigation."""

from __future__ import annotations

from typing import Final

from dashboard.pages import findings, forecast, health, nodes, overview, portrait, recommendations, workloads
from dashboard.view import Page

ALL: Final[tuple[Page, ...]] = (
    overview.PAGE,
    workloads.PAGE,
    portrait.PAGE,
    recommendations.PAGE,
    nodes.PAGE,
    forecast.PAGE,
    findings.PAGE,
    health.PAGE,
)
