"""EDGE: reads the inputs of a rebalancing round once from the Kubernetes API. Nothing is written.

Nodes, pods and NodeMetrics are needed. Forecasts of nodes and of workloads and PodDisruptionBudgets may be missing or
forbidden; `gaps` says so, because a plan without them is a weaker one. Without volumes, pods with claims stay.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.errors import ClusterAbsent, ClusterForbidden, NoData, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kube.reflection import Key
from cotenant.base.kube.watch import read_each
from cotenant.base.kubernetes.models.metadata import ObjectName
from cotenant.base.kubernetes.models.node import SchedulableNode
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.models.pod import WaitingPodWire
from cotenant.base.kubernetes.observed import ON_NODES
from cotenant.base.kubernetes.protocol import NOT_ENDED, SCHEDULING_GROUP, SYSTEM_NAMESPACE
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.scheduler_ext.extender.metric import LoadMetric, NodeMetricWire, Outlook, metric_of, node_of, outlook_of
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.extender.watch.watcher import PATHS
from cotenant.scheduler_ext.rebalance.load import (
    DisruptionBudget,
    NodeLoad,
    RebalanceInputs,
    RebalancePod,
    WorkloadOutlook,
    pod_of,
)
from cotenant.scheduler_ext.rebalance.migration.job import JOBS, MigrationJob, address_of
from cotenant.scheduler_ext.rebalance.published_outlooks import outlooks_address, outlooks_in
from cotenant.scheduler_ext.volumes.reading import read_volumes

_ValueT = TypeVar("_ValueT")
WAITING: Final = "spec.nodeName=,status.phase=Pending"
BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
ALWAYS_ALLOW: Final = "AlwaysAllow"
"""Value of a budget's unhealthyPodEvictionPolicy; unset and IfHealthyBudget are the same."""


class _BudgetSpec(msgspec.Struct, rename="camel"):
    selector: dict[str, Any] | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _BudgetStatus(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class BudgetWire(msgspec.Struct):
    """The part of a PodDisruptionBudget that is read here."""

    metadata: ObjectName = msgspec.field(default_factory=ObjectName)
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)


@dataclass(frozen=True, slots=True)
class RebalanceReading:
    """The cluster at a moment. gaps: sentences on what could not be read. forecasts: of how many nodes. jobs: moves."""

    inputs: RebalanceInputs
    gaps: tuple[str, ...]
    forecasts: int
    jobs: tuple[MigrationJob, ...] = ()

    @property
    def has_forecasts(self) -> bool:
        """True if there are any forecasts: of nodes or, covering the present, of workloads."""
        return self.forecasts > 0 or self.inputs.foreseen_workloads > 0


def read(
    client: KubeClient, settings: LoadAwareSettings, now_seconds: float, namespace: str = SYSTEM_NAMESPACE
) -> RebalanceReading:
    """Read the cluster. ClusterError when nodes, pods or NodeMetrics cannot be listed, NoData when there are none.

    namespace: the manager's, where it publishes the forecasts of workloads.
    """
    gaps: list[str] = []
    nodes = {name: n for (_, name), n in _readable(client, PATHS["nodes"], SchedulableNode, node_of, gaps).items()}
    if not nodes:
        raise NoData("the cluster has no nodes", fix="Is this the right --context?")
    metrics = _metrics(client, gaps)
    outlooks = _outlooks(client, gaps)
    budgets = _budgets(client, gaps)
    pods: dict[str, list[RebalancePod]] = defaultdict(list)
    read_pod = partial(pod_of, settings=settings)
    for pod in _readable(client, PATHS["pods"], msgspec.Raw, read_pod, gaps, fieldSelector=ON_NODES).values():
        pods[pod.facts.node].append(pod)
    waiting = _list_unschedulable_pods(client, settings, gaps)
    resolve = _volume_resolver(client, [*waiting, *chain.from_iterable(pods.values())], gaps)
    loads = [
        NodeLoad(nodes[n], metrics.get(n), outlooks.get(n), tuple(map(resolve, pods.get(n, ())))) for n in sorted(nodes)
    ]
    inputs = RebalanceInputs.of(loads, budgets, now_seconds, tuple(map(resolve, waiting)))
    inputs = replace(inputs, workloads=_workloads(client, namespace, gaps))
    jobs = _jobs(client, gaps)
    gaps += client.gaps()
    return RebalanceReading(inputs, tuple(gaps), sum(load.outlook is not None for load in loads), jobs)


def _volume_resolver(
    client: KubeClient, pods: Sequence[RebalancePod], gaps: list[str]
) -> Callable[[RebalancePod], RebalancePod]:
    """Return what gives a pod what is known of its volumes; they are read only if a pod has a claim."""
    users = Counter((pod.facts.identity.namespace, claim) for pod in pods for claim in set(pod.claims))
    missing: list[str] = []
    found = read_volumes(client, missing) if users else {}
    gaps.extend(f"pods with volume claims are left alone: {why}" for why in missing)
    return lambda pod: pod.with_volumes(found, users)


def _jobs(client: KubeClient, gaps: list[str]) -> tuple[MigrationJob, ...]:
    """PodMigrationJobs; none where their kind is not installed, and a gap for each that cannot be read."""
    try:
        jobs, refused = read_each(client, address_of("").collection, dict[str, Any], MigrationJob.parse)
    except ClusterAbsent:
        return ()
    except ClusterForbidden as error:
        gaps.append(f"moves of the last hour are not counted: {error.message}")
        return ()
    gaps.extend(f"a move is not counted: {why}" for why in refused.values())
    return tuple(jobs.values())


def _readable(
    client: KubeClient, path: str, kind: Any, project: Callable[[Any], _ValueT], gaps: list[str], **query: str
) -> dict[Key, _ValueT]:
    """The values of a collection, and a gap for each object that cannot be read."""
    values, refused = read_each(client, path, kind, project, **query)
    gaps.extend(f"{ObjectVersion(path, *key, '')} cannot be read: {why}" for key, why in refused.items())
    return values


def _list_unschedulable_pods(
    client: KubeClient, settings: LoadAwareSettings, gaps: list[str]
) -> tuple[RebalancePod, ...]:
    """Pods that the scheduler found no node for, without those that only reserve capacity."""

    def read_pod(raw: msgspec.Raw) -> RebalancePod | None:
        is_unschedulable = msgspec.json.decode(raw, type=WaitingPodWire).is_unschedulable
        return pod_of(raw, settings) if is_unschedulable else None

    pods = _readable(client, PATHS["pods"], msgspec.Raw, read_pod, gaps, fieldSelector=WAITING).values()
    return tuple(pod for pod in pods if pod is not None and pod.facts.placeholder_of is None)


def _metrics(client: KubeClient, gaps: list[str]) -> Mapping[str, LoadMetric]:
    """NodeMetrics by node; without any there is nothing to decide on."""
    fix = "Run cotenant's manager and node agents, or Koordinator's: docs/descheduler.md."
    try:
        metrics, refused = read_each(client, PATHS["nodemetrics"], NodeMetricWire, metric_of)
    except ClusterAbsent as error:
        raise NoData("the cluster has no NodeMetrics: their kind is not installed", fix=fix) from error
    if not metrics and not refused:
        raise NoData("the cluster has no NodeMetrics: the usage of nodes is not reported", fix=fix)
    gaps.extend(
        f"NodeMetric {name} cannot be read, so its node counts as silent: {why}" for (_, name), why in refused.items()
    )
    return {name: metric for (_, name), metric in metrics.items()}


def _outlooks(client: KubeClient, gaps: list[str]) -> Mapping[str, Outlook | None]:
    """Forecasts by node; none where the kind is not installed."""
    try:
        outlooks, refused = read_each(client, PATHS["forecasts"], UsageForecast, outlook_of)
    except ClusterAbsent:
        return {}
    except ClusterForbidden as error:
        gaps.append(f"forecasts are not read: {error.message}")
        return {}
    gaps.extend(f"forecast {name} is not read: {why}" for (_, name), why in refused.items())
    return {name: outlook for (_, name), outlook in outlooks.items()}


def _workloads(client: KubeClient, namespace: str, gaps: list[str]) -> Mapping[WorkloadRef, WorkloadOutlook]:
    """Forecasts of workloads; none where the manager publishes none."""
    address = outlooks_address(namespace)
    try:
        return outlooks_in(client.get(address.path))
    except ClusterForbidden as error:
        gaps.append(f"forecasts of workloads are not read: {error.message}")
    except ValueError as error:
        gaps.append(f"forecasts of workloads are not read: {address} cannot be read: {error}")
    return {}


def _budgets(client: KubeClient, gaps: list[str]) -> tuple[DisruptionBudget, ...]:
    """Budgets of all namespaces."""
    try:
        wires = client.list(BUDGETS, BudgetWire)
    except ClusterForbidden as error:
        gaps.append(f"moves are not checked against disruption budgets: {error.message}")
        return ()
    return tuple(map(budget_of, wires))


def budget_of(wire: BudgetWire) -> DisruptionBudget:
    """One budget; one whose selector cannot be read lets nothing in its namespace go.

    A pod that is not ready leaves beyond the budget with AlwaysAllow, and otherwise while enough others are healthy:
    the rule of the API server (`pkg/registry/core/pod/storage/eviction.go`).
    """
    try:
        selector = LabelSelector.parse(wire.spec.selector)
    except UsageError:
        return DisruptionBudget(wire.metadata.namespace, wire.metadata.name, LabelSelector(), 0)
    status = wire.status
    healthy = status.current_healthy >= status.desired_healthy > 0
    unready_may_leave = healthy or wire.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW
    allowed = status.disruptions_allowed
    return DisruptionBudget(wire.metadata.namespace, wire.metadata.name, selector, allowed, unready_may_leave)


MIGRATING: Final = frozenset({"disruption-budgets", "migration-jobs", "migration-pods"})


def migration_mirror(name: str, client: KubeClient, settings: LoadAwareSettings, wake: threading.Event) -> Mirror[Any]:
    """Return a mirror that moves of pods need: jobs, every pod that has not ended, or disruption budgets."""
    if name == "migration-jobs":
        return Mirror(client, f"/apis/{SCHEDULING_GROUP}/{JOBS}", dict[str, Any], MigrationJob.parse, wake)
    if name == "disruption-budgets":
        return Mirror(client, BUDGETS, BudgetWire, budget_of, wake)
    project = partial(pod_of, settings=settings)
    return Mirror(client, "/api/v1/pods", msgspec.Raw, project, wake, fieldSelector=NOT_ENDED)
