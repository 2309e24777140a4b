"""EDGE: the autopilot's service of the settings: their cluster and their ledger."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from cotenant.changes.model.settings import ActionSettings

if TYPE_CHECKING:
    from cotenant.autopilot.rounds.reading import Recommended
    from cotenant.autopilot.service import ClusterAutopilotService
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.changes.service import ClusterAccess


def autopilot_service_of(
    settings: SettingSections,
    recommended: Recommended,
    access: ClusterAccess | None = None,
    clock: Clock | None = None,
    stored: Callable[[], Store] | None = None,
) -> ClusterAutopilotService:
    """A service of the autopilot on the same cluster, with the same ledger; sends no request yet.

    recommended: of a namespace, as they are stored; stored: opens the store itself, whose usage its report looks at.
    """
    from cotenant.autopilot.service import ClusterAutopilotService
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.access.kubeconfig_access import door_of
    from cotenant.changes.model.settings import ledger_location

    ledger = ledger_location(settings.section(ActionSettings), os.environ)
    door = access or door_of(settings)
    return ClusterAutopilotService(door, ledger, settings, clock or SystemClock(), recommended, stored)
