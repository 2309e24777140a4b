"""EDGE: the controller of NodeMetric: reports nodes without an agent, from Prometheus.

At every interval it looks for nodes without a live reporter; if there are none, it sends no queries. A node without an
object gets one, whatever Prometheus knows, because Koordinator's node agent reports only into an existing one. If
cotenant's node agent reports, the controller still writes prod's reclaimable part, because that is a forecast. Between
two intervals it only completes new nodes: first the object, then its status. How usage is aggregated follows
colocation-config; an unreadable key keeps its last valid value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from cotenant.base.cluster import Pod
from cotenant.base.colocation.colocation_strategy import CollectFields
from cotenant.base.colocation.nodemetric import PLURAL, CollectPolicy, NodeMetric, seconds_of
from cotenant.base.controllers.clocks import source_disagrees
from cotenant.base.controllers.contract import FIELD_MANAGER, ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.controllers.watched import WatchedNode
from cotenant.base.errors import CotenantError
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.resource import Resource
from cotenant.base.text import agree, counted
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.profiler.node_metric.status import Observed, ProdOutlook, Report, reports
from cotenant.profiler.node_metric.turn import ReportContext, outlooks, steps, unreported_nodes
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.recommender.colocation.model.slo_forms import SloKey
from cotenant.recommender.colocation.node_slo import config_data

FORECAST_SECONDS: Final = DAY_SECONDS
"""Time for which a run's forecast is published: as long as the forecast reaches."""
EARLY: Final = 0.9
"""Share of the interval after which the next round is due, because the loop's pauses are not exact."""


class UsageSource(Protocol):
    """A source of the usage of nodes and pods, such as `NodeMetricSource`."""

    def observe(self, now_seconds: int, policy: CollectPolicy, addresses: Mapping[str, str]) -> Observed:
        """Return the usage samples of all nodes and pods up to now; `addresses` maps internal IPs to node names."""


class ReclaimableResults(Protocol):
    """The part of a pipeline run that is written into NodeMetrics."""

    @property
    def computed_seconds(self) -> int:
        """Time at which the pipeline run ended, seconds since the epoch."""

    @property
    def prod_reclaimable(self) -> Mapping[str, Mapping[Resource, int]]:
        """Part of prod's requests that prod will not use in the next 24 hours, by node, in each resource's unit."""


class NodeMetricController(Feature):
    """The controller of feature `node-metric`, which writes NodeMetrics from Prometheus."""

    name = "node-metric"
    by_clock = True
    needs: tuple[str, ...] = ("config", "nodes", "nodemetrics", "pods")

    def __init__(
        self,
        mirrors: Mapping[str, Mirror[Any]],
        source: UsageSource,
        results: Callable[[], ReclaimableResults],
        interval_seconds: float,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._mirrors = mirrors
        self._source = source
        self._results = results
        self._config = SloConfig()
        self._begun_seconds: float | None = None
        self._asked_seconds = float("-inf")
        self._open: dict[str, Report] = {}
        self._notes: tuple[ObjectNote, ...] = ()

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - the loop's signature
        """Return due reports of nodes without agent, and due forecasts; between intervals, only new nodes' reports."""
        if self._begun_seconds is None:
            self._begun_seconds = now_seconds
        due = now_seconds - self._asked_seconds >= EARLY * self.interval_seconds
        if not due and not self._open:
            return ControllerDecision(notes=self._notes)
        self._config = self._config.updated(config_data(self._mirrors["config"]))
        nodes: Mapping[tuple[str, str], WatchedNode] = self._mirrors["nodes"].snapshot()
        metrics: Mapping[tuple[str, str], NodeMetric] = self._mirrors["nodemetrics"].snapshot()
        by_node = {name: metric for (_, name), metric in metrics.items()}
        uids = {name: node.owned.uid for (_, name), node in nodes.items()}
        view = ReportContext(uids, FIELD_MANAGER, policy_of(self._config), now_seconds)
        if due:
            try:
                self._query_unreported(by_node, view)
            except CotenantError as error:
                return ControllerDecision(steps((), by_node, view).specs, self._notes, trouble=error)
        writes = steps(self._open.values(), by_node, view)
        foreseen = outlooks(self._outlooks(by_node, now_seconds), by_node, view) if due else []
        self._open = {name: report for name, report in self._open.items() if name not in by_node and name in uids}
        return ControllerDecision((*writes.specs, *writes.statuses, *foreseen), self._notes)

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Do nothing: the watched NodeMetrics show what was written."""

    def _query_unreported(self, by_node: Mapping[str, NodeMetric], view: ReportContext) -> None:
        """Query the usage source if any node has no reporter."""
        node_names = set(unreported_nodes(view.nodes, by_node, view))
        self._open, self._notes = {}, ()
        if node_names:
            observed = self._source.observe(int(view.now_seconds), view.policy, {})
            pods: list[Pod] = [p for p in self._mirrors["pods"].snapshot().values() if p.node in node_names]
            node_reports = reports(observed, pods, view.policy, self._outlooks(by_node, view.now_seconds))
            of_nodes = {r.node: r for r in node_reports if r.node in node_names}
            nodes: Mapping[tuple[str, str], WatchedNode] = self._mirrors["nodes"].snapshot()
            beyond = {
                name: why for name, r in of_nodes.items() if (why := _implausible_amount(r, nodes.get(("", name))))
            }
            self._open = {name: report for name, report in of_nodes.items() if name not in beyond}
            notes = []
            if text := source_disagrees(observed.clock_ahead_seconds):  # though ours agrees with the API server's
                notes.append(ObjectNote("clock", "ClockDoubt", text, warning=True))
            if silent := sorted(node_names - of_nodes.keys()):
                nodes_text = f"{counted(len(silent), 'node')}, such as {silent[0]}."
                text = f"No agent reports these nodes, and Prometheus has no samples of them: {nodes_text}"
                notes.append(ObjectNote(PLURAL, "NoSamples", text, warning=True))
            if beyond:  # not reported, so that nobody acts on what cannot be
                first = min(beyond)
                text = (
                    f"{agree(len(beyond), 'node is', 'nodes are')} not reported, such as {first}: {beyond[first]}. The "
                    "samples in Prometheus are wrong: look for series that are scraped twice or under another node's "
                    "name."
                )
                notes.append(ObjectNote(PLURAL, "ImplausibleSamples", text, warning=True))
            self._notes = tuple(notes)
        self._asked_seconds = view.now_seconds

    def _outlooks(self, by_node: Mapping[str, NodeMetric], now_seconds: float) -> dict[str, ProdOutlook]:
        """Return the forecasts of the pipeline's last run by node; empty once they are too old.

        Before the first run, earlier published values stay in effect for as long as they could be right.
        """
        try:
            results = self._results()
        except CotenantError:  # the features that publish its results say why there are none
            old = now_seconds - (self._begun_seconds or now_seconds) > FORECAST_SECONDS
            return {} if old else {n: ProdOutlook(m.prod_reclaimable) for n, m in by_node.items() if m.prod_reclaimable}
        if now_seconds - results.computed_seconds > FORECAST_SECONDS:
            return {}
        return {node: ProdOutlook(reclaimable=amounts) for node, amounts in results.prod_reclaimable.items()}


def policy_of(config: SloConfig) -> CollectPolicy:
    """Return the policy by which usage is aggregated in the whole cluster.

    What colocation-config does not set is Koordinator's default. As in Koordinator's agent, a window is at least a
    minute long, and reports are at least half a minute apart.
    """
    fields, usual = msgspec.convert(config.values(SloKey.COLOCATION, None), CollectFields), CollectPolicy()
    durations = fields.metric_aggregate_policy.durations
    return CollectPolicy(
        max(60, fields.metric_aggregate_duration_seconds or usual.aggregate_seconds),
        max(30, fields.metric_report_interval_seconds or usual.report_seconds),
        tuple(map(seconds_of, durations)) or usual.durations_seconds,
        fields.metric_memory_collect_policy or usual.memory_policy,
    )


def _implausible_amount(report: Report, watched: WatchedNode | None) -> str:
    """Describe an amount in a report that exceeds its node's capacity; "" if all are plausible."""
    if watched is None:
        return ""
    measured = NodeMetric.parse({"metadata": {"name": report.node}, "status": report.status})
    for resource in Resource:
        capacity = watched.node.capacity.get(resource, 0)
        if what := measured.implausible_field(resource, capacity):
            return f"{what}: more {resource.value} than the node's {capacity} {resource.unit}"
    return ""
