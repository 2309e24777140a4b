"""EDGE: the service of moves of the settings: their cluster, their ledger and the descheduler's configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cotenant.base.settings.sections import ManagerSettings
from cotenant.changes.model.settings import ActionSettings
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings

if TYPE_CHECKING:
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.base import SettingSections
    from cotenant.changes.service import ClusterAccess
    from cotenant.scheduler_ext.rebalance.moves.service import ClusterMoveService


def move_service_of(
    settings: SettingSections, access: ClusterAccess | None = None, clock: Clock | None = None
) -> ClusterMoveService:
    """A service of moves on the same cluster, with the same ledger; sends no request yet."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.access.kubeconfig_access import door_of
    from cotenant.changes.model.settings import anchor_namespace, ledger_location
    from cotenant.scheduler_ext.rebalance.arguments import arguments_from_settings
    from cotenant.scheduler_ext.rebalance.emptying.arguments import emptying_configured
    from cotenant.scheduler_ext.rebalance.moves.service import ClusterMoveService, MoveServiceConfig

    own = settings.section(DeschedulerSettings)
    return ClusterMoveService(
        MoveServiceConfig(
            access=access or door_of(settings),
            ledger=ledger_location(settings.section(ActionSettings), os.environ),
            clock=clock or SystemClock(),
            load_aware=settings.section(ExtenderSettings).load_aware,
            anchor_namespace=anchor_namespace(settings),
            namespace=settings.section(ManagerSettings).namespace,
            arguments=arguments_from_settings(own.configuration).with_limits(own),
            emptying=emptying_configured(own.configuration).with_limits(own),
            configured=bool(own.configuration),
            with_forecast=own.mode == "forecast",
            by_koordinator=own.handled_by == "koordinator",
        )
    )
