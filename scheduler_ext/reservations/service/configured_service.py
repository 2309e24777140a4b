"""EDGE: the plan service of the settings: their cluster and their ledger."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cotenant.changes.model.settings import ActionSettings

if TYPE_CHECKING:
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.changes.service import ClusterAccess
    from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService


def plan_service_of(
    settings: SettingSections, door: ClusterAccess | None = None, clock: Clock | None = None, store: Store | None = None
) -> ClusterPlanService:
    """A plan service on the cluster of the settings and their ledger; sends no request yet.

    door: how the cluster is reached, by the settings unless it is given. store: whose forecasts say what nodes will
    use; without one a preview does not know.
    """
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.access.kubeconfig_access import door_of
    from cotenant.changes.forecasted_usage import ahead_of
    from cotenant.changes.model.settings import anchor_namespace, ledger_location
    from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService, PlanServiceConfig

    config = PlanServiceConfig(
        door=door or door_of(settings),
        ledger=ledger_location(settings.section(ActionSettings), os.environ),
        settings=settings,
        clock=clock or SystemClock(),
        anchor_namespace=anchor_namespace(settings),
        **({"ahead": ahead_of(store)} if store is not None else {}),
    )
    return ClusterPlanService(config)
