"""EDGE: one round of the autopilot, for the manager: `read` decides, `carry_out` writes.

reading = rounds.read(now_seconds)     # also in a dry run
outcomes = rounds.carry_out(reading)   # only where the manager writes, under its Lease
"""

from __future__ import annotations

from dataclasses import replace

from cotenant.autopilot.decide.floors import FloorForecasts, FloorStep
from cotenant.autopilot.decide.halt import AcceptRefusal
from cotenant.autopilot.decide.records import rows_of
from cotenant.autopilot.decide.starts import BoostStep
from cotenant.autopilot.model import QueueVerdict
from cotenant.autopilot.rounds.acts import PATIENCE_SECONDS, ActConfig, ActOutcome, Acts
from cotenant.autopilot.rounds.floors import Floors
from cotenant.autopilot.rounds.ledger_history import LedgerHistory, LedgerReader, append
from cotenant.autopilot.rounds.reading import Recommended, RoundReading, RoundScope, read_round
from cotenant.autopilot.rounds.starts import Starts
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Person
from cotenant.changes.audited_acts import AuditedActs
from cotenant.changes.live_context import who as person_of
from cotenant.changes.model.change import ChangeStatus


class Rounds:
    """Makes the rounds of the autopilot in one cluster: read, decide, write. Not thread-safe."""

    def __init__(self, config: ActConfig, recommended: Recommended, forecasts: FloorForecasts = dict) -> None:
        """Send no request yet. `forecasts` returns the replicas that the last scan's forecast needs."""
        self._config, self._recommended = config, recommended
        self._reader = LedgerReader()
        self._acts = Acts(config)
        self._ledger = AuditedActs(config.access, config.ledger, config.anchor_namespace)
        self._refusals: dict[WorkloadRef, AcceptRefusal] = {}
        self._starts = Starts(config, self._ledger, self._acts.paused)
        self._floors = Floors(config, self._ledger, self._acts.paused, forecasts)

    def read(self, now_seconds: float) -> RoundReading:
        """Return the round as decided now; write nothing."""
        with self._config.access(Person("")) as client:
            scope = RoundScope(refusals=self._refusals)
            return read_round(client, self._history(), self._recommended, self._config.settings, now_seconds, scope)

    def carry_out(self, reading: RoundReading) -> tuple[list[ChangeStatus], list[ActOutcome]]:
        """Continue earlier changes that are due, write the round's rows to the ledger, then make its changes."""
        moved = self._acts.watch(reading)
        config, decisions, now_seconds = self._config, reading.history.decisions, reading.now_seconds
        if rows := list(rows_of(reading.queue, reading.stops, reading.acts, decisions, now_seconds, reading.lapsed)):
            with config.access(Person("")) as client:
                actor = person_of(client).name
            with self._ledger.writing("the autopilot notes", PATIENCE_SECONDS) as ledger:
                append(ledger, config.clock, actor, rows)
        if moved or reading.stops:
            return moved, []  # the next round decides on what is known now
        entries = [entry for entry in reading.queue if entry.verdict is QueueVerdict.ACT]
        # Forget the refusals of workloads that are no candidates any more, except in namespaces that were not read.
        acting = {entry.candidate.workload for entry in reading.queue if entry.candidate.may_act}
        self._refusals = {w: r for w, r in self._refusals.items() if w in acting or w.namespace in reading.unread}
        policies = {entry.candidate.workload: entry.candidate.policy for entry in entries}
        outcomes = []
        for outcome in self._acts.carry_out(replace(reading, history=self._history()), entries):
            # Remember a refused change by its workload, or forget it once a change has succeeded.
            if outcome.changes:
                self._refusals.pop(outcome.workload, None)
            elif not outcome.paused:
                earlier = self._refusals.get(outcome.workload)
                times = earlier.times + 1 if earlier else 1
                refusal = AcceptRefusal(
                    policies[outcome.workload], outcome.words, reading.now_seconds, times, outcome.is_forbidden
                )
                self._refusals[outcome.workload] = refusal
            outcomes.append(outcome)
        return moved, outcomes

    def help_starts(self, reading: RoundReading) -> list[BoostStep]:
        """Give starting pods more CPU as the last round decided, and restore it after starts; return the steps done."""
        return self._starts.step(reading, self._history())

    def hold_floors(self, reading: RoundReading) -> list[FloorStep]:
        """Raise minReplicas ahead of peaks as this round decided, and restore it after them; return the steps done."""
        return self._floors.step(reading, self._history())

    def _history(self) -> LedgerHistory:
        with self._ledger.reading() as ledger:
            return self._reader.read(ledger)
