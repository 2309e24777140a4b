"""EDGE: rounds of the descheduler: the cluster is read, moves are planned, jobs and node taints are written.

A round waits until the moves of the previous one have ended and every node can have reported since. While nodes may be
tainted, every interval checks whether pending pods need them. With `descheduler.dry_run`, or `dryRun` in the
configuration, moves are only planned. The feature `migrations` executes the jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from prometheus_client import CollectorRegistry

from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.intent import Intent, Outcome, Patch
from cotenant.base.kubernetes.node_taints import AVOIDED
from cotenant.base.kubernetes.protocol import EMPTYING_TAINT
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.text import agree
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.load_taints.node_taints import NodeTaints
from cotenant.scheduler_ext.rebalance.anomaly import AnomalyDetectors
from cotenant.scheduler_ext.rebalance.arguments import EMPTYING_PLUGIN, PLUGIN, RebalanceArgs
from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading, read
from cotenant.scheduler_ext.rebalance.controllers.metrics import DeschedulerMetrics
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs
from cotenant.scheduler_ext.rebalance.emptying.decide import decide_emptying
from cotenant.scheduler_ext.rebalance.joint_round import RoundMode, RoundWrites, writes_of
from cotenant.scheduler_ext.rebalance.load import WorkloadOutlook
from cotenant.scheduler_ext.rebalance.migration.churn import Churn
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import JobsUnderWay, RoundCaps, jobs_of, withdrawn_from
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings
from cotenant.scheduler_ext.rebalance.plan import MarkChange, NodeMark, RebalancePlan
from cotenant.scheduler_ext.rebalance.published_outlooks import MedianResults, outlooks_config_map, outlooks_in


@dataclass(frozen=True, slots=True)
class DeschedulerConfig:
    """The settings of the descheduler's rounds, and the arguments of LowNodeLoad and HighNodeLoad."""

    settings: DeschedulerSettings
    load_aware: LoadAwareSettings
    manager: ManagerSettings
    low_node_load: RebalanceArgs
    high_node_load: EmptyingArgs


class DeschedulerController(Feature):
    """The manager's feature `descheduler`: plans moves of pods and emptying of nodes."""

    name = "descheduler"
    by_clock = True
    needs: tuple[str, ...] = ("migration-jobs",)
    listed = frozenset({"nodes"})

    def __init__(
        self,
        client: KubeClient,
        mirrors: Mapping[str, Mirror[Any]],
        config: DeschedulerConfig,
        results: Callable[[], MedianResults],
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Create the controller without any round. Without a registry it exports no metrics."""
        self._client, self._mirrors = client, mirrors
        self._arguments, self._emptying_arguments = config.low_node_load, config.high_node_load
        self._settings, self._load_aware, self._manager = config.settings, config.load_aware, config.manager
        self._results = results
        self.interval_seconds = self._settings.interval_seconds
        self.plan: RebalancePlan | None = None
        """The plan of LowNodeLoad's latest round; the next round starts with its anomaly detectors."""
        self._taints = NodeTaints(client, EMPTYING_TAINT)
        self._has_marks = True
        """Whether nodes may be tainted; initially True, because a killed manager leaves its taints."""
        self._notes: tuple[ObjectNote, ...] = ()
        self._due_seconds = 0.0
        self._metrics = DeschedulerMetrics(registry) if registry else None

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - rounds go by time
        """Return jobs and taints if the next round is due; otherwise only the Events since the last call."""
        notes, self._notes = self._notes, ()
        jobs = tuple(self._mirrors["migration-jobs"].snapshot().values())
        under_way = JobsUnderWay.of(jobs, now_seconds)
        settled_seconds = under_way.last_seconds + self._settings.interval_seconds
        is_settled = not under_way.open and now_seconds >= settled_seconds
        due_seconds = self._due_seconds if self._has_marks else max(self._due_seconds, settled_seconds)
        if now_seconds < due_seconds or not (is_settled or self._has_marks):
            self.interval_seconds = max(due_seconds - now_seconds, 0.0) or self._settings.interval_seconds
            return ControllerDecision(notes=notes)
        self._due_seconds = now_seconds + self._settings.interval_seconds
        self.interval_seconds = self._settings.interval_seconds
        reading = read(self._client, self._load_aware, now_seconds, self._manager.namespace)
        # Forecasts of workloads that all who decide rounds are to decide by; none while the published ones serve.
        outlooks, publication = outlooks_of(self._results), list[Intent]()
        newest, last = (
            max((outlook.start_seconds for outlook in those.values()), default=-math.inf)
            for those in (outlooks, reading.inputs.workloads)
        )
        if outlooks and newest - last >= self._manager.forecast_interval_seconds:
            published = outlooks_config_map(outlooks, self._manager.namespace)
            reading = replace(reading, inputs=replace(reading.inputs, workloads=outlooks_in(published.body)))
            publication.append(published)
        writes = self._writes(reading, jobs, is_settled=is_settled)
        notes += tuple(ObjectNote("descheduler", "Partial", gap, warning=True) for gap in reading.gaps)
        # marks first: what a pod leaves is avoided from then on
        intents: list[Intent] = [*mark_patches(self._taints, writes.marks), *withdrawn_from(writes.released, jobs)]
        if writes.plan is not None:
            intents += jobs_of(writes.plan, reading.inputs, self._arguments.migration, jobs)
        return ControllerDecision((*intents, *publication), notes)

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the outcomes of taint patches for the next Events; the watch on jobs shows which jobs were created."""
        self._notes = tuple(marks_notes(outcomes))
        if self._metrics:
            for note in self._notes:
                self._metrics.mark_changed(away=note.reason == EVENTS["remove"])

    def decide_at_shutdown(self, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - marks do not depend on time
        """Return the writes that remove every emptying taint, because after the manager's end nobody would."""
        return ControllerDecision(tuple(self._taints.withdrawn(LEAVING)))

    def _writes(self, reading: RebalanceReading, jobs: Sequence[MigrationJob], *, is_settled: bool) -> RoundWrites:
        """Run the enabled plugins, and return which parts of their plans are written."""
        settings, inputs = self._settings, reading.inputs
        relieves, empties = (plugin in settings.plugins for plugin in (PLUGIN, EMPTYING_PLUGIN))
        self._has_marks = any(load.mark is not None for load in inputs.loads)
        caps, emptying = RoundCaps.of(inputs, jobs, self._arguments.migration, Churn.of(settings)), None
        if is_settled and relieves:
            arguments, detectors = caps.restrict(self._arguments.with_limits(settings)), AnomalyDetectors()
            detectors = self.plan.detectors if self.plan else detectors
            with_forecast = settings.mode == "forecast" and reading.has_forecasts
            self.plan = decide(inputs, arguments, with_forecast=with_forecast, detectors=detectors)
        if empties or self._has_marks:
            with_forecast = settings.mode == "forecast" and reading.forecasts > 0
            arguments_of_emptying = caps.restrict(self._emptying_arguments.with_limits(settings))
            emptying = decide_emptying(inputs, arguments_of_emptying, with_forecast=with_forecast)
        if self._metrics:
            if self.plan is not None:
                self._metrics.show(self.plan)
            self._metrics.show_marks(emptying or RebalancePlan(False, (), (), (), ()))
        mode = RoundMode(
            is_settled,
            relieves and not (settings.dry_run or self._arguments.is_dry_run),
            empties and not (settings.dry_run or self._emptying_arguments.migration.dry_run),
        )
        writes = writes_of(self.plan if is_settled and relieves else None, emptying, mode)
        self._has_marks |= any(mark.change is MarkChange.SET for mark in writes.marks)
        return writes


def outlooks_of(results: Callable[[], MedianResults]) -> dict[WorkloadRef, WorkloadOutlook]:
    """Return the pipeline's latest forecasts of workloads; {} if no run has succeeded yet."""
    try:
        medians = results().workload_medians
    except CotenantError:
        return {}
    cpu, memory = Resource.CPU, Resource.MEMORY
    return {
        median.ref: WorkloadOutlook(
            median.start_seconds,
            (tuple(median.median.get(cpu, ())), tuple(median.median.get(memory, ()))),
            tuple(median.replicas),
        )
        for median in medians
    }


LEAVING: Final = "The manager stops, so nothing would remove the emptying taint when pods need the node."
EVENTS: Final = {"add": "EmptyingBegun", "remove": "EmptyingEnded"}
"""Last operation of a taint's patch -> reason of its Event."""


def mark_patches(taints: NodeTaints, marks: Iterable[NodeMark]) -> Iterator[Patch]:
    """Yield the patches that add or remove emptying taints; none for a node that is gone or needs no change."""
    for mark in marks:
        if mark.change is MarkChange.STAYS:
            continue
        value, why = "", SENTENCES[mark.reason]
        if mark.change is not MarkChange.TAKEN:
            value, pods = AVOIDED, agree(mark.pods, "pod leaves", "pods leave")
            why = f"{SENTENCES[Reason.UNDER_USED]} {pods}: cost {mark.cost:.0f}, gain {mark.gain:.0f} node-seconds."
        patch = taints.patch(mark.node, value, why)
        if patch is not None:
            yield patch


def marks_notes(outcomes: Sequence[Outcome]) -> Iterator[ObjectNote]:
    """Yield an Event for each taint that the API server added or removed."""
    for outcome in outcomes:
        intent = outcome.intent
        if outcome.ok and isinstance(intent, Patch) and intent.address.resource == "nodes":
            yield ObjectNote(str(intent.address), EVENTS[intent.operations[-1]["op"]], intent.why, event=True)
