"""EDGE: the change service of the settings: their ledger, their cluster and the stored recommendations."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cotenant.base.settings.sections.manager import ManagerSettings
from cotenant.changes.model.settings import ActionSettings
from cotenant.profiler.settings import ProfilerSettings

if TYPE_CHECKING:
    from cotenant.base.identity import WorkloadRef
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.root import SettingSections
    from cotenant.base.store import Store
    from cotenant.changes.service import ClusterAccess, ClusterChangeService
    from cotenant.changes.soak.ladders import Ladders
    from cotenant.recommender.model.recommendation import Recommendation


def change_service_of(
    settings: SettingSections,
    store: Store,
    door: ClusterAccess | None = None,
    clock: Clock | None = None,
    comparison: Mapping[str, Any] | None = None,
) -> ClusterChangeService:
    """A change service on the cluster of the settings and the recommendations of a store; sends no request yet.

    door: how the cluster is reached, by the settings unless it is given. comparison: `compare` and `trace`
    of a metric source in the place of the settings' Prometheus.
    """
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.access.kubeconfig_access import door_of
    from cotenant.changes.model.settings import anchor_namespace, ledger_location
    from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
    from cotenant.changes.soak.usage_comparison import comparison_of
    from cotenant.recommender.stored_recommendations import requested_millicores

    config = ChangeServiceConfig(
        door=door or door_of(settings),
        ledger=ledger_location(settings.section(ActionSettings), os.environ),
        settings=settings.section(ActionSettings),
        clock=clock or SystemClock(),
        recommended=recommended_of(store),
        gpu_shares=gpu_shares_of(store),
        requested_millicores=lambda: requested_millicores(store),
        anchor_namespace=anchor_namespace(settings),
        switch_namespace=settings.section(ManagerSettings).namespace,
        **(comparison_of(settings.section(ProfilerSettings).prometheus) if comparison is None else comparison),
    )
    return ClusterChangeService(config)


def recommended_of(store: Store) -> Callable[[WorkloadRef], Sequence[Recommendation]]:
    """Stored recommendations of a workload, as they are at the moment; none for a workload without."""
    from cotenant.recommender.stored_recommendations import recommendations_of

    of_namespace = recommendations_of(store)

    def read_recommendations(workload: WorkloadRef) -> Sequence[Recommendation]:
        return [r for r in of_namespace(workload.namespace) if r.container.workload == workload]

    return read_recommendations


def climber_of(settings: SettingSections, store: Store) -> Ladders:
    """The function that takes the next steps of accepted ladders by the recommendations of a store."""
    from cotenant.changes.soak.ladders import Ladders
    from cotenant.recommender.stored_recommendations import requested_millicores

    return Ladders(
        recommended_of(store), settings.section(ManagerSettings).namespace, lambda: requested_millicores(store)
    )


def gpu_shares_of(store: Store) -> Callable[[Collection[WorkloadRef]], Sequence[Recommendation]]:
    """Shares of GPUs that stored findings propose for workloads, as they are at the moment; NoData before a scan."""
    from cotenant.recommender.model.views import FINDINGS
    from cotenant.recommender.stored_recommendations import gpu_shares

    return lambda workloads: gpu_shares(store, store.read_table(FINDINGS), set(workloads))
