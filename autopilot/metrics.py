"""Metrics of the autopilot: its queue, its changes, soaking and harmful ones, and whether it is stopped."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from cotenant.autopilot.decide.history import ActState
from cotenant.autopilot.model import QueueVerdict
from cotenant.autopilot.rounds.acts import ActOutcome
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.base.reasons import Reason

HALTS = (Reason.AUTOPILOT_PAUSED, Reason.AUTOPILOT_STOPPED, Reason.AUTOPILOT_CLUSTER_IN_TROUBLE)


class AutopilotMetrics:
    """The last round, and acts since the process started."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        word = "cotenant_autopilot"
        self._queue = Gauge(
            f"{word}_workloads", "Workloads of the last round by decision.", ["decision"], registry=registry
        )
        self._changes = Gauge(
            f"{word}_changes", "Changes of the autopilot in the ledger by state.", ["state"], registry=registry
        )
        self._halted = Gauge(
            f"{word}_halted", "1 while nothing is changed for this reason.", ["reason"], registry=registry
        )
        self._acts = Counter(
            f"{word}_acts_total", "Changes tried, by outcome: accepted or refused.", ["outcome"], registry=registry
        )
        for outcome in ("accepted", "refused"):
            self._acts.labels(outcome)

    def show(self, reading: RoundReading) -> None:
        """Set the metrics to the last decision."""
        verdicts = Count(entry.verdict for entry in reading.queue)
        for verdict in QueueVerdict:
            self._queue.labels(verdict.value).set(verdicts[verdict])
        states = Count(act.state for act in reading.acts)
        for state in ActState:
            self._changes.labels(state.value).set(states[state])
        for reason in HALTS:
            self._halted.labels(reason.value).set(reading.halt is not None and reading.halt.reason is reason)

    def acted(self, outcomes: Sequence[ActOutcome]) -> None:
        """Count the acts that were accepted and refused; those that a pause kept back are not counted."""
        for outcome in outcomes:
            if not outcome.paused:
                self._acts.labels("accepted" if outcome.changes else "refused").inc()
