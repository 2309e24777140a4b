"""EDGE: What `cotenant reservations backtest` needs of an analysis, which is made above this room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cotenant.base.cluster import Inventory
    from cotenant.base.identity import WorkloadRef
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.base.usage.usage import Usage


@dataclass(frozen=True, slots=True)
class WorkloadHistory:
    """The stored history of workloads. The command line names who reads it: `cotenant.cli.registry.PROVIDERS`."""

    read_cpu_totals: Callable[[Store, SettingSections], tuple[Inventory, Usage[WorkloadRef]]]
    """Returns the inventory and each workload's 5-minute CPU totals in millicores; NoData when none are stored."""
