"""EDGE: reads the inputs of one rebalancing round from the Kubernetes API. Nothing is written.

Nodes, pods and NodeMetrics are required. Forecasts of nodes and workloads and PodDisruptionBudgets may be missing or
forbidden; `gaps` then says so, because the plan is less reliable. If volumes are unknown, pods with claims stay.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.errors import ClusterAbsent, ClusterForbidden, NoData, UsageError
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
from cotenant.scheduler_ext.extender.metric import LoadMetric, NodeMetricWire, metric_of, node_of, outlook_of
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.extender.watch.watcher import PATHS
from cotenant.scheduler_ext.rebalance.load import DisruptionBudget, NodeLoad, RebalanceInputs, RebalancePod, pod_of
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
    """The fields of a PodDisruptionBudget that rebalancing reads."""

    metadata: ObjectName = msgspec.field(default_factory=ObjectName)
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)


@dataclass(frozen=True, slots=True)
class RebalanceReading:
    """The cluster as read for a round; `forecasts` counts nodes that have one, `gaps` say what could not be read."""

    inputs: RebalanceInputs
    gaps: tuple[str, ...]
    forecasts: int
    jobs: tuple[MigrationJob, ...] = ()

    @property
    def has_forecasts(self) -> bool:
        """True if nodes have forecasts, or workloads have forecasts of the present time."""
        return self.forecasts > 0 or self.inputs.foreseen_workloads > 0


def read(
    client: KubeClient, settings: LoadAwareSettings, now_seconds: float, namespace: str = SYSTEM_NAMESPACE
) -> RebalanceReading:
    """Read the cluster; ClusterError if nodes, pods or NodeMetrics cannot be listed, NoData if it has no nodes.

    `namespace` is the manager's, in which it publishes the forecasts of workloads.
    """
    gaps: list[str] = []
    nodes = {name: n for (_, name), n in _readable(client, PATHS["nodes"], SchedulableNode, node_of, gaps).items()}
    if not nodes:
        raise NoData("the cluster has no nodes", fix="Check that --context is the right one.")
    metrics = _metrics(client, gaps)
    forecasts = _optional(
        client, PATHS["forecasts"], UsageForecast, outlook_of, gaps, "forecasts are not read", "forecast {} is not read"
    )
    outlooks = {name: outlook for (_, name), outlook in forecasts.items()}
    budgets: tuple[DisruptionBudget, ...] = ()
    try:
        budgets = tuple(map(budget_of, client.list(BUDGETS, BudgetWire)))
    except ClusterForbidden as error:
        gaps.append(f"moves are not checked against disruption budgets: {error.message}")
    pods: dict[str, list[RebalancePod]] = defaultdict(list)
    read_pod = partial(pod_of, settings=settings)
    for pod in _readable(client, PATHS["pods"], msgspec.Raw, read_pod, gaps, fieldSelector=ON_NODES).values():
        pods[pod.facts.node].append(pod)
    waiting = _list_unschedulable_pods(client, settings, gaps)
    # volumes are read only if a pod has a claim
    with_claims = (*waiting, *chain.from_iterable(pods.values()))
    users = Counter((pod.facts.identity.namespace, claim) for pod in with_claims for claim in set(pod.claims))
    missing: list[str] = []
    volumes = read_volumes(client, missing) if users else {}
    gaps += [f"pods with volume claims are not moved: {why}" for why in missing]
    loads = []
    for name in sorted(nodes):
        own = tuple(pod.with_volumes(volumes, users) for pod in pods.get(name, ()))
        loads.append(NodeLoad(nodes[name], metrics.get(name), outlooks.get(name), own))
    waiting = tuple(pod.with_volumes(volumes, users) for pod in waiting)
    inputs = RebalanceInputs.of(loads, budgets, now_seconds, waiting)
    address = outlooks_address(namespace)
    try:
        inputs = replace(inputs, workloads=outlooks_in(client.get(address.path)))
    except ClusterForbidden as error:
        gaps.append(f"forecasts of workloads are not read: {error.message}")
    except ValueError as error:
        gaps.append(f"forecasts of workloads are not read: {address} cannot be read: {error}")
    path, uncounted = address_of("").collection, "moves of the last hour are not counted"
    jobs = _optional(client, path, dict[str, Any], MigrationJob.parse, gaps, uncounted, "move {} is not counted")
    gaps += client.gaps()
    foreseen = sum(load.outlook is not None for load in loads)
    return RebalanceReading(inputs, tuple(gaps), foreseen, tuple(jobs.values()))


def _optional(
    client: KubeClient, path: str, kind: Any, project: Callable[[Any], _ValueT], gaps: list[str], all_of: str, each: str
) -> dict[Key, _ValueT]:
    """Return a collection's values by key; {} if its kind is not installed or listing it is forbidden.

    If it is forbidden, `all_of` is added to the gaps; for each unreadable object `each` with {} replaced by its name.
    """
    try:
        values, refused = read_each(client, path, kind, project)
    except ClusterAbsent:
        return {}
    except ClusterForbidden as error:
        gaps.append(f"{all_of}: {error.message}")
        return {}
    gaps.extend(f"{each.format(name)}: {why}" for (_, name), why in refused.items())
    return values


def _readable(
    client: KubeClient, path: str, kind: Any, project: Callable[[Any], _ValueT], gaps: list[str], **query: str
) -> dict[Key, _ValueT]:
    """Return a collection's values by key, and add a gap for each object that cannot be read."""
    values, refused = read_each(client, path, kind, project, **query)
    gaps.extend(f"{ObjectVersion(path, *key, '')} cannot be read: {why}" for key, why in refused.items())
    return values


def _list_unschedulable_pods(
    client: KubeClient, settings: LoadAwareSettings, gaps: list[str]
) -> tuple[RebalancePod, ...]:
    """Return the pods for which the scheduler found no node, without placeholders."""

    def read_pod(raw: msgspec.Raw) -> RebalancePod | None:
        is_unschedulable = msgspec.json.decode(raw, type=WaitingPodWire).is_unschedulable
        return pod_of(raw, settings) if is_unschedulable else None

    pods = _readable(client, PATHS["pods"], msgspec.Raw, read_pod, gaps, fieldSelector=WAITING).values()
    return tuple(pod for pod in pods if pod is not None and pod.facts.placeholder_of is None)


def _metrics(client: KubeClient, gaps: list[str]) -> Mapping[str, LoadMetric]:
    """Return NodeMetrics by node; raise NoData if there are none, because nothing could be decided."""
    fix = "Run cotenant's manager and node agents, or Koordinator's: docs/descheduler.md."
    try:
        metrics, refused = read_each(client, PATHS["nodemetrics"], NodeMetricWire, metric_of)
    except ClusterAbsent as error:
        raise NoData("the cluster has no NodeMetrics: their CRD is not installed", fix=fix) from error
    if not metrics and not refused:
        raise NoData("the cluster has no NodeMetrics: the usage of nodes is not reported", fix=fix)
    gaps.extend(
        f"NodeMetric {name} cannot be read, so its node cannot be judged: {why}" for (_, name), why in refused.items()
    )
    return {name: metric for (_, name), metric in metrics.items()}


def budget_of(wire: BudgetWire) -> DisruptionBudget:
    """Parse a PodDisruptionBudget; one with an unreadable selector blocks all evictions in its namespace.

    A pod that is not ready may be evicted beyond the budget with AlwaysAllow, or while enough other pods are healthy:
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
    """Return the mirror (a watched copy) of one collection: jobs, pods that have not ended, or disruption budgets."""
    if name == "migration-jobs":
        return Mirror(client, f"/apis/{SCHEDULING_GROUP}/{JOBS}", dict[str, Any], MigrationJob.parse, wake)
    if name == "disruption-budgets":
        return Mirror(client, BUDGETS, BudgetWire, budget_of, wake)
    project = partial(pod_of, settings=settings)
    return Mirror(client, "/api/v1/pods", msgspec.Raw, project, wake, fieldSelector=NOT_ENDED)
