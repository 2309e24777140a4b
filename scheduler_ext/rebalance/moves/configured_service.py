"""EDGE: the service of moves of the settings: their cluster, their ledger and the descheduler's configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.root import Settings
    from cotenant.changes.service import ClusterAccess
    from cotenant.scheduler_ext.rebalance.moves.service import ClusterMoveService


def move_service_of(
    settings: Settings, access: ClusterAccess | None = None, clock: Clock | None = None
) -> ClusterMoveService:
    """A service of moves on the same cluster, with the same ledger; sends no request yet."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.settings.sections.actions import ledger_location
    from cotenant.changes.access.kubeconfig_access import door_of
    from cotenant.scheduler_ext.rebalance.arguments import arguments_from_settings
    from cotenant.scheduler_ext.rebalance.emptying.arguments import emptying_configured, with_limits
    from cotenant.scheduler_ext.rebalance.moves.service import ClusterMoveService, MoveServiceConfig

    own = settings.descheduler
    return ClusterMoveService(
        MoveServiceConfig(
            access=access or door_of(settings),
            ledger=ledger_location(settings.actions, os.environ),
            clock=clock or SystemClock(),
            load_aware=settings.extender.load_aware,
            anchor_namespace=settings.manager.namespace if settings.actions.anchor else "",
            namespace=settings.manager.namespace,
            arguments=with_limits(arguments_from_settings(own.configuration), own),
            emptying=with_limits(emptying_configured(own.configuration), own),
            configured=bool(own.configuration),
            with_forecast=own.mode == "forecast",
            by_koordinator=own.handled_by == "koordinator",
        )
    )
