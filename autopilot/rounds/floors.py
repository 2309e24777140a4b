"""EDGE: raises minReplicas ahead of a peak and restores it; the ledger has the raise before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from cotenant.autopilot.decide import floors
from cotenant.autopilot.decide.halt import WriteRefusals
from cotenant.autopilot.model import AutopilotEvent
from cotenant.autopilot.rounds.acts import PATIENCE_SECONDS, ActConfig
from cotenant.autopilot.rounds.cluster_state import FIELD_MANAGER, list_readable
from cotenant.autopilot.rounds.ledger_history import LedgerHistory, append
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.rounds.starts import steps_until_pause
from cotenant.base.errors import ClusterUnreachable, CotenantError, NoData, NotLeader
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Person
from cotenant.base.store import Store
from cotenant.changes.audited_acts import AuditedActs
from cotenant.changes.live_context import who as person_of
from cotenant.changes.model.settings import ActionSettings
from cotenant.recommender.model.views import REPLICAS


class Floors:
    """Raises and restores minReplicas of one cluster's autoscalers. Not thread-safe."""

    def __init__(
        self, config: ActConfig, ledger: AuditedActs, paused: Callable[[], str], forecasts: floors.FloorForecasts
    ) -> None:
        """Send no request yet. `paused` returns why nothing may be raised now, "" if it may (`Acts.paused`)."""
        self._config, self._ledger, self._paused, self._forecasts = config, ledger, paused, forecasts
        self._refusals = WriteRefusals()
        """By the autoscaler's uid: a raise that was refused rests; what goes back is tried in each round."""

    def step(self, reading: RoundReading, history: LedgerHistory) -> list[floors.FloorStep]:
        """Restore minReplicas after peaks, even during a halt, then raise it ahead of peaks; return all steps tried."""
        factors = floors.floor_factors(reading.queue, history.decisions.left_alone)
        if not factors and not history.floors:
            return []
        with self._config.access(Person("")) as client:
            due = list(self._due(client, factors, reading, history))
            steps = sorted(due, key=lambda step: step.event is AutopilotEvent.FLOOR_RAISED)
            if not steps:
                return []
            actor, writer = person_of(client).name, Writer(client, FIELD_MANAGER)
            with self._ledger.writing("the autopilot raises or restores minReplicas", PATIENCE_SECONDS) as ledger:
                going = steps_until_pause(steps, AutopilotEvent.FLOOR_RAISED, self._paused)
                return [self._done(ledger, actor, writer, step) for step in going]

    def _due(
        self, client: KubeClient, factors: Mapping[WorkloadRef, float], reading: RoundReading, history: LedgerHistory
    ) -> Iterator[floors.FloorStep]:
        now, forecasts = self._config.clock.now_seconds(), self._forecasts() if factors else {}
        guardrails = self._config.settings.section(ActionSettings).guardrails
        workloads = {*factors, *(lent.workload for lent in history.floors.values())}
        for namespace in sorted({workload.namespace for workload in workloads}):
            bodies = list_readable(client, f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers")
            if bodies is None:
                continue
            live = {str(body["metadata"]["uid"]): body for body in bodies}
            for uid, lent in history.floors.items():
                if lent.workload.namespace == namespace and uid not in live:
                    yield floors.FloorStep(AutopilotEvent.FLOOR_ENDED, lent, "the autoscaler was deleted")
            unread = inf if namespace in reading.unread else 1.0
            may_rise = reading.halt is None and namespace not in {*reading.unread, *guardrails.protected_namespaces}
            for uid, body in live.items():
                workload, present = floors.target_of(namespace, body), history.floors.get(uid)
                factor = factors.get(workload, unread)
                if present is not None and present.workload != workload:
                    workload, factor = present.workload, 1.0  # it scales another one now
                for step in floors.floor_steps(workload, body, factor, present, forecasts.get(workload), now):
                    is_raise = step.event is AutopilotEvent.FLOOR_RAISED
                    if not is_raise or (
                        may_rise and not self._refusals.rests(uid, now) and not floors.kept_by(body, guardrails)
                    ):
                        yield step

    def _done(self, ledger: Ledger, actor: str, writer: Writer, step: floors.FloorStep) -> floors.FloorStep:
        """Send a step. A raise is in the ledger before it is sent and once accepted, an end only after it."""
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
            self._refusals.refused(step.lent.uid, self._config.clock.now_seconds())
            return replace(step, refused=error.message)
        self._refusals.written(step.lent.uid)
        self._write(ledger, actor, floors.mark_arrived(step) if is_raise else step)
        return step

    def _write(self, ledger: Ledger, actor: str, step: floors.FloorStep) -> None:
        """Write the step's row; also one that the workload is left alone from now on if somebody else set the field."""
        rows: list[tuple[AutopilotEvent, str, dict[str, Any]]] = [
            (step.event, str(step.lent.workload), floors.details_of(step))
        ]
        if step.is_fought:
            rows.append((AutopilotEvent.LEFT_ALONE, str(step.lent.workload), {"words": step.words}))
        append(ledger, self._config.clock, actor, rows)


def floor_forecasts(store: Store) -> dict[WorkloadRef, floors.FloorForecast]:
    """Return the replica forecasts of the stored results, for workloads with an autoscaler; empty without results."""
    try:
        rows = store.read_table(REPLICAS).rows()
    except NoData:
        return {}
    return {
        WorkloadRef(row["namespace"], row["kind"], row["workload"]): floors.FloorForecast(
            int(row["start"]), tuple(int(count) for count in row["floors"]), int(row["least"])
        )
        for row in rows
        if row["floors"] and row["least"] is not None
    }
