"""EDGE: the stored history of workloads, for commands of rooms below the pipeline."""

from __future__ import annotations

from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.settings.base import SettingSections
from cotenant.base.store import Store
from cotenant.base.usage.usage import Usage
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL
from cotenant.pipeline.shards.work import workload_totals
from cotenant.pipeline.stored_history import load
from cotenant.scheduler_ext.reservations.commands.workload_history import WorkloadHistory
from cotenant.settings import Settings


def workload_history() -> WorkloadHistory:
    """The `WorkloadHistory` of `cotenant reservations backtest`, from the store and summed as by an analysis."""
    return WorkloadHistory(_read_cpu_totals)


def _read_cpu_totals(store: Store, settings: SettingSections) -> tuple[Inventory, Usage[WorkloadRef]]:
    history = load(store, Settings.of(settings))
    return history.inventory, workload_totals(history)[1][POD_SIGNAL[Resource.CPU]]
