"""EDGE: rounds of the descheduler as the loop runs them: the cluster is read, a plan decided, jobs made of it.

A round waits until the moves of the one before have ended and every node can have reported since. `descheduler.dry_run`
leaves it at the plan. The jobs are carried out by the feature `migrations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from cotenant.apps.manager.controllers.contract import ControllerDecision, ObjectNote
from cotenant.apps.manager.controllers.migration_metrics import DeschedulerMetrics
from cotenant.apps.manager.loop import Changes
from cotenant.core.adapters.kube import KubeClient, Mirror
from cotenant.core.model.kubernetes.intent import Outcome
from cotenant.core.settings.sections.descheduler import DeschedulerSettings
from cotenant.core.settings.sections.extender import LoadAwareSettings
from scheduler_ext.rebalance.anomaly import AnomalyDetectors
from scheduler_ext.rebalance.arguments import RebalanceArgs
from scheduler_ext.rebalance.cluster_reading import RebalanceReading, read
from scheduler_ext.rebalance.decide import decide
from scheduler_ext.rebalance.limits import churn_of
from scheduler_ext.rebalance.migration.arbitration import resting_workloads
from scheduler_ext.rebalance.migration.job import MigrationJob
from scheduler_ext.rebalance.migration.planned_jobs import JobsUnderWay, jobs_of
from scheduler_ext.rebalance.migration.view import MigrationView
from scheduler_ext.rebalance.plan import RebalancePlan


class DeschedulerController:
    """Feature `descheduler`."""

    name = "descheduler"
    needs: tuple[str, ...] = ("migration-jobs",)

    def __init__(
        self,
        client: KubeClient,
        mirrors: Mapping[str, Mirror[Any]],
        settings: tuple[DeschedulerSettings, LoadAwareSettings],
        arguments: RebalanceArgs,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """No round yet; without a registry nothing is counted."""
        self._client, self._mirrors, self._arguments = client, mirrors, arguments
        self._settings, self._load_aware = settings
        self.interval_seconds = self._settings.interval_seconds
        self.plan: RebalancePlan | None = None
        """What the last round decided; its anomaly detectors are what the next one begins with."""
        self._due_seconds = 0.0
        self._metrics = DeschedulerMetrics(registry) if registry else None

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - rounds go by time
        """Jobs of the next round when it is due, and nothing before."""
        jobs = tuple(self._mirrors["migration-jobs"].snapshot().values())
        under_way = JobsUnderWay.of(jobs, now_seconds)
        settled_seconds = under_way.last_seconds + self._settings.interval_seconds
        due_seconds = max(self._due_seconds, settled_seconds)
        if under_way.open or now_seconds < due_seconds:
            self.interval_seconds = max(due_seconds - now_seconds, 0.0) or self._settings.interval_seconds
            return ControllerDecision()
        self._due_seconds = now_seconds + self._settings.interval_seconds
        self.interval_seconds = self._settings.interval_seconds
        reading = read(self._client, self._load_aware, now_seconds)
        self.plan = self._decided(reading, jobs)
        if self._metrics:
            self._metrics.show(self.plan)
        notes = tuple(ObjectNote("descheduler", "Partial", gap, warning=True) for gap in reading.gaps)
        if self._settings.dry_run:
            return ControllerDecision(notes=notes)
        return ControllerDecision(tuple(jobs_of(self.plan, reading.inputs, self._arguments.migration, jobs)), notes)

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """The mirror shows what became of it."""

    def _decided(self, reading: RebalanceReading, jobs: Sequence[MigrationJob]) -> RebalancePlan:
        """The round, with what is left of this hour's moves, and without workloads that were moved lately."""
        settings, now_seconds = self._settings, reading.inputs.now_seconds
        under_way = JobsUnderWay.of(jobs, now_seconds)
        pods_by_name = {
            (pod.facts.identity.namespace, pod.facts.identity.name): pod
            for load in reading.inputs.loads
            for pod in load.pods
        }
        view = MigrationView(jobs, pods_by_name, arguments=self._arguments.migration, now_seconds=now_seconds)
        moves_left = churn_of(len(pods_by_name), settings.churn_percent / 100, settings.least_churn) - under_way.hour
        arguments = replace(
            self._arguments,
            pause_seconds=settings.pause_seconds,
            most_moves=max(moves_left, 0),
            resting=resting_workloads(view),
        )
        with_forecast = settings.mode == "forecast" and reading.forecasts > 0
        detectors = self.plan.detectors if self.plan else AnomalyDetectors()
        return decide(reading.inputs, arguments, with_forecast=with_forecast, detectors=detectors)
