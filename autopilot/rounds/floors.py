"""EDGE: lends replicas ahead of a peak and takes them back; what is lent is in the ledger before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from autopilot.decide.floors import (
    FloorForecast,
    FloorStep,
    arrived,
    details_of,
    floor_factors,
    floor_steps,
    kept_by,
)
from autopilot.decide.refusals import AcceptRefusal
from autopilot.rounds.acts import PATIENCE_SECONDS, ActConfig
from autopilot.rounds.cluster_state import FIELD_MANAGER
from autopilot.rounds.ledger_history import LedgerHistory, append
from autopilot.rounds.reading import RoundReading
from autopilot.rounds.starts import unpaused
from changes.audited_acts import AuditedActs
from changes.live_context import who as person_of
from cotenant.core.adapters.kube import KubeClient, Writer
from cotenant.core.adapters.ledger import Ledger
from cotenant.core.model.autopilot import AutopilotEvent
from cotenant.core.model.changes.people import Person
from cotenant.core.model.errors import ClusterUnreachable, CotenantError, NotLeader
from cotenant.core.model.identity import WorkloadRef

FloorForecasts = Callable[[], Mapping[WorkloadRef, FloorForecast]]
"""Of the last scan."""


class Floors:
    """Floors of one cluster; for one thread."""

    def __init__(
        self, config: ActConfig, ledger: AuditedActs, paused: Callable[[], str], forecasts: FloorForecasts
    ) -> None:
        """Nothing is asked yet. paused: why nothing may be lent now, "" when it may (`Acts.paused`)."""
        self._config, self._ledger, self._paused, self._forecasts = config, ledger, paused, forecasts
        self._refusals: dict[str, AcceptRefusal] = {}
        """By the autoscaler's uid: what the server refused, which rests before it is tried anew."""

    def step(self, reading: RoundReading, history: LedgerHistory) -> list[FloorStep]:
        """What is over goes back, also while everything halts; then what a peak asks for is lent. What was done."""
        factors = floor_factors(reading.queue, history.decisions.left_alone)
        if not factors and not history.floors:
            return []
        with self._config.access(Person("")) as client:
            due = list(self._due(client, factors, reading, history))
            steps = sorted(due, key=lambda step: step.event is AutopilotEvent.FLOOR_RAISED)
            if not steps:
                return []
            actor, writer = person_of(client).name, Writer(client, FIELD_MANAGER)
            with self._ledger.writing("the autopilot lends replicas", PATIENCE_SECONDS) as ledger:
                going = unpaused(steps, AutopilotEvent.FLOOR_RAISED, self._paused)
                return [step for step in going if self._done(ledger, actor, writer, step)]

    def _due(
        self, client: KubeClient, factors: Mapping[WorkloadRef, float], reading: RoundReading, history: LedgerHistory
    ) -> Iterator[FloorStep]:
        now, forecasts = self._config.clock.now_seconds(), self._forecasts()
        workloads = {*factors, *(lent.workload for lent in history.floors.values())}
        namespaces = {workload.namespace for workload in workloads} - reading.unread
        for namespace in sorted(namespaces):
            path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
            live = {str(body["metadata"]["uid"]): body for body in client.list(path)}
            for uid, lent in history.floors.items():
                if lent.workload.namespace == namespace and uid not in live:
                    yield FloorStep(AutopilotEvent.FLOOR_ENDED, lent, "the autoscaler is gone")
            for uid, body in live.items():
                present, refusal = history.floors.get(uid), self._refusals.get(uid)
                workload = present.workload if present else _target(namespace, body)
                if refusal is not None and refusal.left_seconds(now):
                    continue
                for step in floor_steps(
                    workload, body, factors.get(workload, 1.0), present, forecasts.get(workload), now
                ):
                    is_raise = step.event is AutopilotEvent.FLOOR_RAISED
                    if not (is_raise and (reading.halt or kept_by(body, self._config.settings.actions.guardrails))):
                        yield step

    def _done(self, ledger: Ledger, actor: str, writer: Writer, step: FloorStep) -> bool:
        """Whether it was done. A raise is in the ledger before it is sent and once it has arrived; an end after it."""
        is_raise = step.event is AutopilotEvent.FLOOR_RAISED
        try:
            if step.patch is not None:
                writer.send(step.patch, dry_run=True)
                if is_raise:
                    self._write(ledger, actor, step)
                writer.send(step.patch)
        except (NotLeader, ClusterUnreachable):
            raise  # the next round reads what became of it
        except CotenantError as error:
            earlier = self._refusals.get(step.lent.uid)
            times, now = earlier.times + 1 if earlier else 1, self._config.clock.now_seconds()
            self._refusals[step.lent.uid] = AcceptRefusal("", error.message, now, times)
            return False
        self._refusals.pop(step.lent.uid, None)
        self._write(ledger, actor, arrived(step) if is_raise else step)
        return True

    def _write(self, ledger: Ledger, actor: str, step: FloorStep) -> None:
        """Its row; with that of the workload that is left alone from now on, where somebody else has set the field."""
        rows: list[tuple[AutopilotEvent, str, dict[str, Any]]] = [
            (step.event, str(step.lent.workload), details_of(step))
        ]
        if step.is_fought:
            rows.append((AutopilotEvent.LEFT_ALONE, str(step.lent.workload), {"words": step.words}))
        append(ledger, self._config.clock, actor, rows)


def _target(namespace: str, autoscaler: Mapping[str, Any]) -> WorkloadRef:
    reference = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    return WorkloadRef(namespace, str(reference.get("kind") or ""), str(reference.get("name") or ""))
