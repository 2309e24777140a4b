"""EDGE: the change service of a dashboard: the ledger, the cluster and the stored recommendations of the settings.

Who sits at this machine acts with the kubeconfig's rights, under the name that the cluster knows them by.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cotenant.base.commands.output import message
from cotenant.base.errors import ClusterError
from cotenant.base.people import Grant, Person, Role

if TYPE_CHECKING:
    from cotenant.autopilot.rounds.reading import Recommended
    from cotenant.autopilot.service import ClusterAutopilotService
    from cotenant.base.identity import WorkloadRef
    from cotenant.base.kube import KubeClient
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.root import Settings
    from cotenant.base.settings.sections.kube import KubeSettings
    from cotenant.base.store import Store
    from cotenant.changes.service import ClusterAccess, ClusterChangeService
    from cotenant.recommender.model.recommendation import Recommendation
    from cotenant.scheduler_ext.rebalance.moves.service import ClusterMoveService
    from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService

PATIENCE_SECONDS: Final = 3.0
"""How long a start waits for the cluster to say who we are."""
CALL_SECONDS: Final = 5.0
"""Longest silence of the API server while somebody looks at a page."""
ANSWER_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 20.0
"""A connection that lay idle for longer may have been closed at the other end: it is not used for a write."""


def change_service_of(
    settings: Settings,
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
    from cotenant.base.settings.sections.actions import ledger_location
    from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
    from cotenant.changes.soak.usage_comparison import comparison_of
    from cotenant.recommender.stored_recommendations import requested_millicores

    office = ChangeServiceConfig(
        door=door or door_of(settings),
        ledger=ledger_location(settings.actions, os.environ),
        settings=settings.actions,
        clock=clock or SystemClock(),
        recommended=recommended_of(store),
        gpu_shares=gpu_shares_of(store),
        requested_millicores=lambda: requested_millicores(store),
        anchor_namespace=settings.manager.namespace if settings.actions.anchor else "",
        **(comparison_of(settings.profiler.prometheus) if comparison is None else comparison),
    )
    return ClusterChangeService(office)


def plan_service_of(
    settings: Settings, door: ClusterAccess | None = None, clock: Clock | None = None, store: Store | None = None
) -> ClusterPlanService:
    """A plan service on the cluster of the settings and their ledger; sends no request yet.

    door: how the cluster is reached, by the settings unless it is given. store: whose forecasts say what nodes will
    use; without one a preview does not know.
    """
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.settings.sections.actions import ledger_location
    from cotenant.changes.forecasted_usage import ahead_of
    from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService, PlanServiceConfig

    office = PlanServiceConfig(
        door=door or door_of(settings),
        ledger=ledger_location(settings.actions, os.environ),
        settings=settings,
        clock=clock or SystemClock(),
        anchor_namespace=settings.manager.namespace if settings.actions.anchor else "",
        **({"ahead": ahead_of(store)} if store is not None else {}),
    )
    return ClusterPlanService(office)


def move_service_of(
    settings: Settings, access: ClusterAccess | None = None, clock: Clock | None = None
) -> ClusterMoveService:
    """A service of moves on the same cluster, with the same ledger; sends no request yet."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.settings.sections.actions import ledger_location
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


def autopilot_service_of(
    settings: Settings,
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
    from cotenant.base.settings.sections.actions import ledger_location

    ledger = ledger_location(settings.actions, os.environ)
    door = access or door_of(settings)
    return ClusterAutopilotService(door, ledger, settings, clock or SystemClock(), recommended, stored)


def door_of(settings: Settings) -> ClusterAccess:
    """Each person by the way they are known: the kubeconfig's rights, their own token, or a review before ours."""
    from cotenant.changes.access.cluster_access import by_way

    return by_way(interactive_kube_settings(settings.kube), settings.access, kubeconfig_door(settings.kube))


def interactive_kube_settings(settings: KubeSettings) -> KubeSettings:
    """The same for calls that somebody waits for in front of a page."""
    return msgspec.structs.replace(
        settings,
        timeout_seconds=min(settings.timeout_seconds, CALL_SECONDS),
        deadline_seconds=min(settings.deadline_seconds, ANSWER_SECONDS),
        retries=min(settings.retries, 1),
    )


def kubeconfig_door(settings: KubeSettings) -> ClusterAccess:
    """Everybody acts with the rights of one kubeconfig; for the loopback alone. Clients are lent again for a while."""
    from cotenant.base.kube import connect

    hasty = interactive_kube_settings(settings)
    idle: list[tuple[float, KubeClient]] = []
    lock = threading.Lock()

    def lent() -> KubeClient:
        with lock:
            while idle:
                since, client = idle.pop()
                if time.monotonic() - since < IDLE_SECONDS:
                    return client
                client.close()
        return connect(hasty)

    @contextmanager
    def door(_who: Person) -> Iterator[KubeClient]:
        client = lent()
        try:
            yield client
        except BaseException:
            client.close()
            raise
        with lock:
            idle.append((time.monotonic(), client))

    return door


def at_this_machine(settings: KubeSettings) -> Callable[[], Person]:
    """The local person as administrator, under the name that the cluster returns; no name while it does not answer."""
    from cotenant.base.kube import connect
    from cotenant.changes.live_context import who

    hasty = msgspec.structs.replace(
        settings, timeout_seconds=PATIENCE_SECONDS, deadline_seconds=PATIENCE_SECONDS, retries=0
    )
    name, groups = "", tuple[str, ...]()
    try:
        client = connect(hasty)
        try:
            person = who(client)
        finally:
            client.close()
        name, groups = person.name, person.groups
    except ClusterError as error:
        message(f"the cluster does not say who you are: {error}. {error.fix}", style="yellow")
    someone = Person(name, groups, grants=(Grant(Role.ADMIN),))
    return lambda: someone


def recommended_of(store: Store) -> Callable[[WorkloadRef], Sequence[Recommendation]]:
    """Stored recommendations of a workload, as they are at the moment; none for a workload without."""
    from cotenant.recommender.stored_recommendations import recommendations_of

    of_namespace = recommendations_of(store)

    def recommended(workload: WorkloadRef) -> Sequence[Recommendation]:
        return [r for r in of_namespace(workload.namespace) if r.container.workload == workload]

    return recommended


def gpu_shares_of(store: Store) -> Callable[[Collection[WorkloadRef]], Sequence[Recommendation]]:
    """Shares of GPUs that stored findings propose for workloads, as they are at the moment; NoData before a scan."""
    from cotenant.recommender.model.views import FINDINGS
    from cotenant.recommender.stored_recommendations import gpu_shares

    return lambda workloads: gpu_shares(store, store.read_table(FINDINGS), set(workloads))
