"""EDGE: the controller of the extended resources batch-cpu, batch-memory, mid-cpu and mid-memory.

Mirrors pass changed objects to `recommender.colocation.state`; every reconciliation computes all nodes and writes those
that need it. The configuration is the ConfigMap's: without it the feature is off and amounts are withdrawn; while it is
unreadable the last valid one stays in effect. If it was unreadable since the start, nothing is done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cotenant.base.cluster import Pod
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.controllers.clocks import nodes_disagree
from cotenant.base.controllers.contract import FIELD_MANAGER, ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature, Key
from cotenant.base.errors import CotenantError
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Intent, Outcome
from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP
from cotenant.base.text import counted
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender.colocation.columns import PeakForecast
from cotenant.recommender.colocation.model.prod_peaks import PeakResults, ProdPeak
from cotenant.recommender.colocation.model.slo_config import SloConfigFinding, parse
from cotenant.recommender.colocation.model.slo_forms import SloKey
from cotenant.recommender.colocation.node_slo import config_data, notes_of
from cotenant.recommender.colocation.publish import policy_name_removal, policy_on, publish
from cotenant.recommender.colocation.state import ColocationState, Computed
from cotenant.recommender.colocation.strategy import CONFIG_KEY, ColocationConfig
from cotenant.recommender.colocation.zones import publish_zones

SUBJECT: Final = f"configmaps/{SLO_CONFIG_MAP}"


class ColocationController(Feature):
    """The controller of feature `colocation`, which publishes batch and mid resources on Nodes."""

    name = "colocation"
    by_clock = True
    needs: tuple[str, ...] = ("config", "nodes", "nodemetrics", "pods")
    optional: tuple[str, ...] = ("topologies",)

    def __init__(
        self,
        mirrors: Mapping[str, Mirror[Any]],
        results: Callable[[], PeakResults],
        interval_seconds: float,
        take_over: Collection[str] = (),
    ) -> None:
        self.interval_seconds = interval_seconds
        self._take_over = frozenset(take_over)
        self._publishers: dict[str, tuple[str, ...]] = {}
        """By node: other programs that publish its amounts; such a node is left to them."""
        self._results = results
        self._foreseen: PeakResults | None = None
        self._mirrors = mirrors
        self._state = ColocationState(ColocationConfig(), time.monotonic)
        self._text: str | None = None
        self._config: ColocationConfig | None = ColocationConfig()
        self._wrong: CotenantError | None = None
        self._ineffective: tuple[SloConfigFinding, ...] = ()
        self._written: dict[str, float] = {}
        self._now_seconds = 0.0
        self._ahead_by_node: dict[str, float] = {}
        """Seconds; of nodes whose agents report."""

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:
        """Return the writes of nodes' amounts and zones that have to change; none while clocks disagree."""
        self._now_seconds = now_seconds
        self._compare_clocks(changes)
        # Bring the state up to what the mirrors show.
        nodes, gone_nodes = _split(self._mirrors["nodes"], changes.get("nodes", set()))
        if nodes:
            self._state.upsert_nodes(n.node for n in nodes)
        for watched in nodes:
            self._publishers.pop(watched.node.name, None)
            if others := tuple(name for name in watched.other_writers if name not in self._take_over):
                self._publishers[watched.node.name] = others
        for _, name in gone_nodes:
            self._state.remove_node(name)
            self._written.pop(name, None)
            self._publishers.pop(name, None)
        metrics, gone_metrics = _split(self._mirrors["nodemetrics"], changes.get("nodemetrics", set()))
        reports: list[NodeMetric] = metrics
        self._state.report(reports)
        for _, name in gone_metrics:
            self._state.forget(name)
        pods, gone_pods = _split(self._mirrors["pods"], changes.get("pods", set()))
        present: list[Pod] = pods
        self._state.upsert_pods(present)
        for namespace, name in gone_pods:
            self._state.remove_pod(namespace, name)
        self._configure()
        self._forecast_peaks(now_seconds)
        notes = self._notes()
        if doubt := nodes_disagree(self._ahead_by_node):
            return ControllerDecision(notes=(ObjectNote("clock", "ClockDoubt", doubt, warning=True), *notes))
        if self._config is None:
            return ControllerDecision(notes=notes)
        computed = self._state.compute(now_seconds)
        intents = publish(self._state.facts, self._state.strategies, computed, self._written, now_seconds)
        intents = [intent for intent in intents if intent.address.name not in self._publishers]
        # Writes that take our policy's name from nodes whose amounts another program publishes.
        for facts in self._state.facts:
            if facts.node.name in self._publishers and policy_on(facts) is not None:
                intents.append(policy_name_removal(facts, "another program publishes the node's amounts"))
        zones = (patch for patch in self._zones(computed) if patch.address.name not in self._publishers)
        # The extended resources, as JSON, that the nodes have whose writes these are.
        amounts = {facts.node.name: facts.node.extended_allocatable for facts in self._state.facts}
        had = ((intent.address, amounts[intent.address.name]) for intent in intents)
        present_amounts = {address: msgspec.json.encode(current).decode() for address, current in had if current}
        return ControllerDecision((*intents, *zones), notes, present_amounts)

    def _compare_clocks(self, changes: Changes) -> None:
        """Record by how many seconds each agent's clock is ahead of the controller's clock.

        Only reports that arrived while the controller watched count; reports by FIELD_MANAGER are left out.
        """
        present = self._mirrors["nodemetrics"].snapshot()
        for key in changes.get("nodemetrics", ()):
            report: NodeMetric | None = present.get(key)
            before = self._state.metric(key[1])
            self._ahead_by_node.pop(key[1], None)
            if report is None or before is None or report.reporter == FIELD_MANAGER:
                continue
            if report.update_seconds is not None and report.update_seconds != before.update_seconds:
                self._ahead_by_node[key[1]] = report.update_seconds - self._now_seconds

    def _zones(self, computed: Computed) -> Iterator[Intent]:
        topologies = self._mirrors["topologies"]
        if topologies.error is not None or not topologies.wait_synced(0):
            return
        kept_nodes = self._state.kept(computed)
        reported = (topology for _, topology in sorted(topologies.snapshot().items()))
        node_topologies = [t for t in reported if t.node in self._state and t.node not in kept_nodes]
        if not node_topologies:
            return
        threshold = max((s.diff_threshold for s in self._state.strategies), default=0.0)
        yield from publish_zones(node_topologies, self._state.offered(computed), self._state.zones, threshold)

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Remember when each node was last written, because small changes wait for updateTimeThresholdSeconds."""
        sent = (o.intent.address for o in outcomes if o.ok)
        self._written |= {address.name: self._now_seconds for address in sent if address.resource == "nodes"}

    def _forecast_peaks(self, now_seconds: float) -> None:
        """Take over the pipeline's newest peaks; ignore a run that is older than its own horizon."""
        try:
            results = self._results()
        except CotenantError:
            return  # the features that publish its results say why there are none
        fresh = results if now_seconds - results.computed_seconds < DAY_SECONDS else None
        if fresh is self._foreseen:
            return
        self._foreseen = fresh
        peaks_by_resource = fresh.prod_peaks if fresh else {}
        census = fresh.prod_census.census if fresh and fresh.prod_census else None
        forecasts = {r: {n: _peak(p) for n, p in peaks.items()} for r, peaks in peaks_by_resource.items()}
        self._state.set_forecasts(forecasts, census)

    def _configure(self) -> None:
        """Follow the ConfigMap's key; if its first text after a start is unreadable, there is no configuration."""
        text = (config_data(self._mirrors["config"]) or {}).get(CONFIG_KEY)
        if text == self._text:
            return
        configured = self._text is not None or self._config != ColocationConfig()
        self._text, self._wrong = text, None
        findings = parse(SloKey.COLOCATION, text)[1] if text is not None else ()
        self._ineffective = tuple(finding for finding in findings if not finding.fatal)
        try:
            self._config = ColocationConfig.parse(text) if text is not None else ColocationConfig()
            self._state.configure(self._config)
        except CotenantError as error:
            self._wrong = error
            self._config = self._config if configured else None

    def _notes(self) -> tuple[ObjectNote, ...]:
        """Return the notes on the configuration, on nodes' annotations and on nodes left to other programs.

        They name faults in the configuration and ignored annotations of single nodes.
        """
        ignored = ((f"nodes/{facts.node.name}", text) for facts in self._state.facts for text in facts.notes)
        notes = [ObjectNote(node, "IgnoredAnnotation", text) for node, text in ignored]
        # One note for all nodes whose amounts another program publishes: two would overwrite each other for ever.
        publishers = self._publishers
        if publishers:
            names = sorted({name for others in publishers.values() for name in others})
            left_text = (
                f"{', '.join(names)} publishes batch or mid amounts of {counted(len(publishers), 'node')}, such as "
                f"{min(publishers)}: cotenant writes none. Once that program is gone, name it in manager.take_over."
            )
            notes.append(ObjectNote("nodes", "NotOurs", left_text, warning=True))
        if self._wrong is not None:
            stays = "The last valid configuration stays in effect."
            consequence = stays if self._config else "No valid configuration is known, so no amount is written."
            text = f"{self._wrong.message}. {consequence} {self._wrong.fix}"
            notes.append(ObjectNote(SUBJECT, "InvalidConfig", text, warning=True))
        return (*notes, *notes_of(self._ineffective))


def _peak(peak: ProdPeak) -> PeakForecast:
    violation, system = (math.nan if value is None else value for value in (peak.violation, peak.system))
    return PeakForecast(peak.peak, violation, peak.origins, system, peak.mid)


def _split(mirror: Mirror[Any], changed: set[Key]) -> tuple[list[Any], set[Key]]:
    """Return the changed objects that exist now, and the keys of those that do not."""
    objects = mirror.snapshot() if changed else {}
    return [objects[key] for key in changed if key in objects], {key for key in changed if key not in objects}
