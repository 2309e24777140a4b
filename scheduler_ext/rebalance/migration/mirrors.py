"""EDGE: the watched collections that moves of pods read."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final

import msgspec

from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.protocol import NOT_ENDED, SCHEDULING_GROUP
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.rebalance.cluster_reading import BUDGETS, BudgetWire, budget_of
from cotenant.scheduler_ext.rebalance.load import pod_of as rebalance_pod_of
from cotenant.scheduler_ext.rebalance.migration.job import JOBS, MigrationJob

MIGRATING: Final = frozenset({"disruption-budgets", "migration-jobs", "migration-pods"})


def migration_mirror(name: str, client: KubeClient, settings: LoadAwareSettings, wake: threading.Event) -> Mirror[Any]:
    """Return a mirror that moves of pods need: jobs, every pod that has not ended, or disruption budgets."""
    if name == "migration-jobs":
        return Mirror(client, f"/apis/{SCHEDULING_GROUP}/{JOBS}", dict[str, Any], MigrationJob.parse, wake)
    if name == "disruption-budgets":
        return Mirror(client, BUDGETS, BudgetWire, budget_of, wake)
    project = partial(rebalance_pod_of, settings=settings)
    return Mirror(client, "/api/v1/pods", msgspec.Raw, project, wake, fieldSelector=NOT_ENDED)
