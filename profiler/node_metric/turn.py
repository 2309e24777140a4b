"""Decides who writes a node's NodeMetric: cotenant never overwrites the report of a live agent. Pure.

The last reporter is the field manager of status.updateTime. An agent that wrote within two of its report intervals is
alive (one missed report is jitter, two are silence) and its report stays, whatever Prometheus has. cotenant's own
report is replaced if there is a newer sample and either usage changed or the published time is about to become stale:
Koordinator's scheduler treats a metric as expired after three intervals.

A status can be written only to an existing object: for a new node the first decision creates the object, the next one
writes its status. A node without data gets an object too, because Koordinator's node agent reports only into one. The
spec is written once, and again only if the collect policy or the node changed. A spec with values of another program,
such as Koordinator's manager, is corrected only on nodes that cotenant reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cotenant.base.colocation.nodemetric import PLURAL, CollectPolicy, NodeMetric, from_spec, spec_of
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.protocol import NODE_AGENT, SLO_GROUP
from cotenant.base.resource import Amounts
from cotenant.profiler.node_metric.status import ProdOutlook, Report, outlook_status

SILENT_INTERVALS: Final = 2
STALE_INTERVALS: Final = 1.5
"""Age in report intervals at which a report is renewed although usage did not change. One round later, with the
samples' own delay, it would be close to the three intervals after which the scheduler treats it as expired."""
MOVED_FRACTION: Final = 0.05


class ReportDecision(StrEnum):
    """The decision to write a node's NodeMetric or not; except for WRITE, the value is the reason not to write it."""

    WRITE = "write"
    AGENT = "the node's own agent reports usage"
    NO_NEWER = "no newer sample"
    STEADY = "usage did not change"


@dataclass(frozen=True, slots=True)
class Steps:
    """The writes of one round: NodeMetrics' `specs` and `statuses`; `turns` is the number of reports by decision."""

    specs: tuple[Apply, ...] = ()
    statuses: tuple[Apply, ...] = ()
    turns: Mapping[ReportDecision, int] = field(default_factory=dict)


def steps(reports: Iterable[Report], metrics: Mapping[str, NodeMetric], view: ReportContext) -> Steps:
    """Return the writes of these reports' statuses, and of all nodes' missing NodeMetrics and outdated specs.

    `turn_of` decides on each status. A report is dropped if its node is gone or a running agent reports that node.
    """
    statuses, turns = [], dict.fromkeys(ReportDecision, 0)
    owned = {node for node, metric in metrics.items() if metric.spec_writers == (view.manager,)}
    for report in (r for r in reports if r.node in view.nodes):
        turn = turn_of(report, metrics.get(report.node), view)
        turns[turn] += 1
        if turn is not ReportDecision.AGENT:
            owned.add(report.node)
        if turn is ReportDecision.WRITE and report.node in metrics:
            address = Address(SLO_GROUP, PLURAL, report.node)
            body = address.manifest("NodeMetric", status=report.status)
            statuses.append(Apply(address, body, subresource="status", why="usage from Prometheus"))
    specs = (
        _spec(node, view)
        for node, uid in sorted(view.nodes.items())
        if (metric := metrics.get(node)) is None or (node in owned and _is_outdated(metric, uid, view.policy))
    )
    return Steps(tuple(specs), tuple(statuses), turns)


def _is_outdated(metric: NodeMetric, uid: str, policy: CollectPolicy) -> bool:
    """Return whether the spec is not of this policy, or the owner not of this uid; fields that others add are right."""
    return uid not in metric.owner_uids or any(metric.collect.get(k) != v for k, v in spec_of(policy).items())


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The context of decisions: uids of existing nodes by name, cotenant's field manager, the policy, and the time."""

    nodes: Mapping[str, str]
    manager: str
    policy: CollectPolicy
    now_seconds: float


def outlooks(prod: Mapping[str, ProdOutlook], metrics: Mapping[str, NodeMetric], view: ReportContext) -> list[Apply]:
    """Return the writes of changed prodReclaimable forecasts, for nodes whose usage cotenant's node agent reports.

    Koordinator's agent writes this forecast itself. If a node has no forecast, the published one is removed.
    """
    intents = []
    for node, metric in metrics.items():
        if node not in view.nodes or metric.reporter != NODE_AGENT or not alive(metric, view.now_seconds):
            continue
        outlook = prod.get(node)
        if _have_amounts_changed(outlook.reclaimable if outlook else {}, metric.prod_reclaimable):
            address = Address(SLO_GROUP, PLURAL, node)
            body = address.manifest("NodeMetric", status=outlook_status(outlook))
            intents.append(Apply(address, body, subresource="status", why="forecast of prod"))
    return intents


def turn_of(report: Report, current: NodeMetric | None, view: ReportContext) -> ReportDecision:
    """Return WRITE if the report has to replace the node's present NodeMetric status, or the reason not to."""
    if current is None or current.update_seconds is None:
        return ReportDecision.WRITE
    if current.reporter != view.manager:
        return ReportDecision.AGENT if alive(current, view.now_seconds) else ReportDecision.WRITE
    if report.time_seconds <= current.update_seconds:
        return ReportDecision.NO_NEWER
    grows_stale = view.now_seconds - current.update_seconds >= STALE_INTERVALS * view.policy.report_seconds
    moved = (
        grows_stale
        or _have_amounts_changed(report.usage, current.node_usage)
        or _have_amounts_changed(report.system, current.system_usage)
    )
    return ReportDecision.WRITE if moved else ReportDecision.STEADY


def alive(metric: NodeMetric, now_seconds: float) -> bool:
    """Return whether a NodeMetric is recent enough to show that the agent which reports it runs.

    A report from the future, beyond usual clock differences, comes from a wrong clock and proves nothing.
    """
    reach = SILENT_INTERVALS * from_spec(metric.collect).report_seconds
    return metric.update_seconds is not None and -reach <= now_seconds - metric.update_seconds <= reach


def unreported_nodes(nodes: Iterable[str], metrics: Mapping[str, NodeMetric], view: ReportContext) -> list[str]:
    """Return the nodes that no running agent reports; if there are none, Prometheus need not be queried."""
    return [
        n
        for n in nodes
        if (o := metrics.get(n)) is None or o.reporter == view.manager or not alive(o, view.now_seconds)
    ]


def _have_amounts_changed(now: Amounts, before: Amounts) -> bool:
    """Return whether an amount changed by more than a twentieth, or a resource appeared or disappeared."""
    return now.keys() != before.keys() or any(abs(now[r] - before[r]) > MOVED_FRACTION * before[r] for r in now)


def _spec(node: str, view: ReportContext) -> Apply:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": view.nodes[node]}
    address, spec = Address(SLO_GROUP, PLURAL, node), {"metricCollectPolicy": spec_of(view.policy)}
    body = address.manifest("NodeMetric", {"ownerReferences": [owner]}, spec=spec)
    return Apply(address, body, why="the node's collect policy is missing or outdated")
