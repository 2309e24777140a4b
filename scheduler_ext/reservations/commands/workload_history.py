"""EDGE: the usage history that `cotenant reservations backtest` needs; a higher package provides its reader."""

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
    """The reader of the stored usage of workloads; the entry in `cotenant.cli.registry.PROVIDERS` creates it."""

    read_cpu_totals: Callable[[Store, SettingSections], tuple[Inventory, Usage[WorkloadRef]]]
    """Returns the inventory and each workload's 5-minute CPU totals in millicores; NoData when none are stored."""
