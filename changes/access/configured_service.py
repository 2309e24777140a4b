"""EDGE: the change service built from the settings: their ledger, their cluster and the stored recommendations."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cotenant.base.settings.sections import ManagerSettings
from cotenant.changes.model.settings import ActionSettings
from cotenant.profiler.settings import ProfilerSettings

if TYPE_CHECKING:
    from cotenant.base.identity import WorkloadRef
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.changes.audited_acts import ClusterAccess
    from cotenant.changes.service import ClusterChangeService
    from cotenant.changes.soak.ladders import Ladders
    from cotenant.recommender.model.recommendation import Recommendation

KeptT = TypeVar("KeptT")


def change_service_of(
    settings: SettingSections,
    store: Store,
    door: ClusterAccess | None = None,
    clock: Clock | None = None,
    comparison: Mapping[str, Any] | None = None,
) -> ClusterChangeService:
    """Return a change service on the configured cluster and the recommendations of a store; no request is sent yet.

    `door` replaces the configured access to the cluster. `comparison` holds functions `compare` and `trace`, which
    replace those that query the configured Prometheus.
    """
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.access.kubeconfig_access import door_of
    from cotenant.changes.model.settings import anchor_namespace, ledger_location
    from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
    from cotenant.changes.soak.usage_comparison import comparison_of

    config = ChangeServiceConfig(
        access=door or door_of(settings),
        ledger=ledger_location(settings.section(ActionSettings), os.environ),
        settings=settings.section(ActionSettings),
        clock=clock or SystemClock(),
        recommended=recommended_of(store),
        gpu_shares=gpu_shares_of(store),
        requested_millicores=requested_of(store),
        anchor_namespace=anchor_namespace(settings),
        switch_namespace=settings.section(ManagerSettings).namespace,
        **(comparison_of(settings.section(ProfilerSettings).prometheus) if comparison is None else comparison),
    )
    return ClusterChangeService(config)


def recommended_of(store: Store) -> Callable[[Collection[WorkloadRef]], list[Recommendation]]:
    """Return a function that reads the stored recommendations of workloads; a workload may have none.

    A namespace is read once for all of its workloads; the namespace that was read last is cached.
    """
    from cotenant.recommender.stored_recommendations import recommendations_of

    of_namespace = recommendations_of(store)

    def read_namespace(namespace: str) -> dict[WorkloadRef, list[Recommendation]]:
        by_workload: dict[WorkloadRef, list[Recommendation]] = {}
        for recommendation in of_namespace(namespace):
            by_workload.setdefault(recommendation.container.workload, []).append(recommendation)
        return by_workload

    read = _kept_for_a_run(store, read_namespace)

    def read_workloads(workloads: Collection[WorkloadRef]) -> list[Recommendation]:
        stored = {namespace: read(namespace) for namespace in dict.fromkeys(ref.namespace for ref in workloads)}
        return [recommendation for ref in workloads for recommendation in stored[ref.namespace].get(ref, ())]

    return read_workloads


def requested_of(store: Store) -> Callable[[], int]:
    """Return a function that returns the sum of all stored workloads' CPU requests, in millicores."""
    from cotenant.recommender.stored_recommendations import requested_millicores

    read = _kept_for_a_run(store, lambda _: requested_millicores(store))
    return lambda: read("")


def _kept_for_a_run(store: Store, read: Callable[[str], KeptT]) -> Callable[[str], KeptT]:
    """Cache the last answer of `read` while its argument and the published run stay the same."""
    last: list[tuple[tuple[str, str], KeptT]] = []

    def read_once(question: str) -> KeptT:
        key, answers = (store.run_name(), question), last[:]
        if not key[0] or not answers or answers[0][0] != key:
            answers = [(key, read(question))]
            last[:] = answers
        return answers[0][1]

    return read_once


def climber_of(settings: SettingSections, store: Store) -> Ladders:
    """Return the object that applies due steps of accepted ladders (cuts in steps) with the store's recommendations."""
    from cotenant.changes.soak.ladders import Ladders

    return Ladders(recommended_of(store), settings.section(ManagerSettings).namespace, requested_of(store))


def gpu_shares_of(store: Store) -> Callable[[Collection[WorkloadRef]], Sequence[Recommendation]]:
    """Return a function that reads the GPU shares that stored findings propose; it raises NoData before a scan."""
    from cotenant.recommender.model.views import FINDINGS
    from cotenant.recommender.stored_recommendations import gpu_shares

    return lambda workloads: gpu_shares(store, store.read_table(FINDINGS), set(workloads))
