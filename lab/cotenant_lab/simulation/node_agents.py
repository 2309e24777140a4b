"""EDGE: simulated node agents: report NodeMetrics of fake nodes, from the simulated demand of their pods.

Only nodes without a real kubelet are reported: kwok's, and those that the demo made. A recent report of another agent
is left alone; the manager takes this one for an agent (the fresher report wins).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from cotenant.base.cluster import Node
from cotenant.base.colocation.nodemetric import PLURAL, CollectPolicy, NodeMetric
from cotenant.base.errors import UsageError
from cotenant.base.kube import KubeClient, send_all
from cotenant.base.kubernetes.intent import Address, Apply, Delete
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.kubernetes.observed import ON_NODES, ObservedNode, node_of, pod_of
from cotenant.base.kubernetes.protocol import SLO_GROUP
from cotenant.base.process.clock import Clock
from cotenant.base.resource import Resource
from cotenant.cli.cluster.real_nodes import DEMO_LABEL, KWOK_ANNOTATION
from cotenant.profiler.node_metric.status import reports
from cotenant.profiler.node_metric.turn import ReportContext, steps, unreported_nodes
from cotenant_lab.simulation import usage_now
from cotenant_lab.simulation.usage_now import Curves, DemoMoment

FIELD_MANAGER: Final = "cotenant-demo"
METRICS: Final = f"/apis/{SLO_GROUP}/{PLURAL}"
LEAST_REPORT_SECONDS: Final = 60
"""Interval that NodeMetrics name at least: readers take a report for dead after a few of them."""


@dataclass(frozen=True, slots=True)
class ReportPace:
    """The interval of reports, and the factor by which the day passes faster than the clock."""

    interval_seconds: float = 60.0
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class AgentRound:
    """One round of reports: time of the demo's day (Unix seconds), fake nodes and those reported, pods, total usage."""

    of_day_seconds: float
    reported: int
    nodes: int
    pods: int
    usage: dict[Resource, int]

    @property
    def unreported(self) -> int:
        """Number of nodes that have an agent of their own, so that nothing is reported for them."""
        return self.nodes - self.reported


class NodeAgents:
    """The simulated agents of all fake nodes, for one thread."""

    def __init__(self, client: KubeClient, curves: Curves, clock: Clock, pace: ReportPace) -> None:
        """Store the arguments; nothing is requested yet. The day begins at the clock's time."""
        self._client, self._curves, self._clock, self._pace = client, curves, clock, pace
        self._begun_seconds = clock.now_seconds()
        self._policy = CollectPolicy(report_seconds=max(LEAST_REPORT_SECONDS, round(pace.interval_seconds)))

    def round(self) -> AgentRound:
        """Read which pods are where, and report every fake node; raise ClusterAbsent if NodeMetric is not installed."""
        metrics_by_node = metrics(self._client)
        observed_nodes = {node.name: node for node in map(node_of, fake(self._client.list("/api/v1/nodes", NodeWire)))}
        nodes = tuple(node for node in map(model_node, observed_nodes.values()) if node)
        listed = map(pod_of, self._client.list("/api/v1/pods", ObservedPodWire, fieldSelector=ON_NODES))
        pods = usage_now.pods_of(listed, nodes)
        now = self._clock.now_seconds()
        of_day = self._begun_seconds + (now - self._begun_seconds) * self._pace.speed
        moment = DemoMoment(now, of_day, self._policy)
        observed, placed = usage_now.observed(pods, nodes, self._curves, moment)
        outlooks = usage_now.outlooks(pods, nodes, self._curves, moment)
        node_reports = reports(observed, placed, self._policy, outlooks)
        uids = {node.name: node.uid for node in observed_nodes.values()}
        view = ReportContext(uids, FIELD_MANAGER, self._policy, moment.now_seconds)
        ours = set(unreported_nodes(view.nodes, metrics_by_node, view))
        mine = [report for report in node_reports if report.node in ours]
        # An agent reports every time, moved or not: what stands there counts as never filled.
        prior = {name: replace(of, update_seconds=None) for name, of in metrics_by_node.items() if name in ours}
        first = steps(mine, prior, view)
        _all(self._client, first.specs)  # new objects, then every status; the first refusal is raised
        statuses = first.statuses
        if first.specs:  # what has just been made has a status now
            statuses = steps(mine, {report.node: NodeMetric(report.node, None) for report in mine}, view).statuses
        _all(self._client, statuses)
        usage = {r: sum(report.usage.get(r, 0) for report in node_reports) for r in Resource}
        return AgentRound(moment.of_day_seconds, len(mine), len(nodes), len(pods), usage)


def _all(client: KubeClient, intents: Iterable[Apply]) -> None:
    for outcome in send_all(client, list(intents), FIELD_MANAGER):
        if outcome.error is not None:
            raise outcome.error


def metrics(client: KubeClient) -> dict[str, NodeMetric]:
    """Return the NodeMetrics by node; raise ClusterAbsent if the kind is not installed."""
    node_metrics = map(NodeMetric.parse, client.list(METRICS, dict[str, Any]))
    return {metric.node: metric for metric in node_metrics}


def own_metric_deletes(node_metrics: Iterable[NodeMetric]) -> list[Delete]:
    """Return the deletions of the NodeMetrics that this agent reported last."""
    ours = (metric.node for metric in node_metrics if metric.reporter == FIELD_MANAGER)
    return [Delete(Address(SLO_GROUP, PLURAL, node), why="cotenant demo --remove") for node in ours]


def fake(nodes: Iterable[NodeWire]) -> list[NodeWire]:
    """Return the nodes without a real kubelet: kwok's, and the demo's own."""
    key, value = KWOK_ANNOTATION
    return [
        node
        for node in nodes
        if (node.metadata.annotations or {}).get(key) == value or (node.metadata.labels or {}).get(DEMO_LABEL) == "true"
    ]


def has_fake_nodes(client: KubeClient) -> bool:
    """Return whether the cluster has a fake node to report."""
    return bool(fake(client.list("/api/v1/nodes", NodeWire)))


def model_node(observed: ObservedNode) -> Node | None:
    """Return the node as one of the synthetic cluster's model; None if its CPU or memory is unknown."""
    both = observed.capacity, observed.allocatable
    amounts = [{r: quantities[r.value] for r in Resource if r.value in quantities} for quantities in both]
    if any(amount.get(r, 0) <= 0 for amount in amounts for r in Resource):
        return None
    return Node(observed.name, amounts[0], amounts[1])


def nodes_of(client: KubeClient) -> tuple[Node, ...]:
    """Return the cluster's nodes by name; raise UsageError if no node has known CPU and memory."""
    candidates = map(model_node, map(node_of, client.list("/api/v1/nodes", NodeWire)))
    nodes = sorted((node for node in candidates if node), key=lambda node: node.name)
    if not nodes:
        raise UsageError(
            f"{client.access.server} has no node whose CPU and memory are known",
            fix="Add nodes, or let the demo create fake nodes for kwok with --fake-nodes.",
        )
    return tuple(nodes)
