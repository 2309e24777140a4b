"""EDGE: gives starting pods more CPU and restores it; the ledger gets a row before the write, and one at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from cotenant.autopilot.decide.floors import FloorStep
from cotenant.autopilot.decide.halt import WriteRefusals
from cotenant.autopilot.decide.round_order import helped_starts
from cotenant.autopilot.decide.starts import BoostStep, StartAim, beginnings, details_of, endings
from cotenant.autopilot.model import AutopilotEvent
from cotenant.autopilot.rounds.acts import PATIENCE_SECONDS, ActConfig
from cotenant.autopilot.rounds.cluster_state import FIELD_MANAGER, list_readable
from cotenant.autopilot.rounds.ledger_history import LedgerHistory, append
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.base.errors import ClusterUnreachable, CotenantError, NotLeader
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.protocol import NOT_ENDED
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Person
from cotenant.changes.audited_acts import AuditedActs
from cotenant.changes.live_context import who as person_of
from cotenant.profiler.settings import PortraitSettings

Step = TypeVar("Step", BoostStep, FloorStep)
MOST_HELPED: Final = 50
"""Largest number of starts that get CPU in one round, which keeps the ledger locked meanwhile."""


class Starts:
    """Gives starting pods of one cluster more CPU, and restores it after the start. Not thread-safe."""

    def __init__(self, config: ActConfig, ledger: AuditedActs, paused: Callable[[], str]) -> None:
        """Send no request yet. `paused` returns why no pod may get more CPU now, "" if it may (`Acts.paused`)."""
        self._config, self._ledger, self._paused = config, ledger, paused
        self._refusals = WriteRefusals()
        """Refused restorations, by the pod's uid; they are retried."""

    def step(self, reading: RoundReading, history: LedgerHistory) -> list[BoostStep]:
        """Restore the CPU of ended starts, even during a halt, then raise that of starting pods; return the steps done.

        The pause switch is read before each raise. A call raises the CPU of at most MOST_HELPED pods.
        """
        aims = helped_starts(reading.queue, reading.halt)
        if not aims and not history.boosts:
            return []
        with self._config.access(Person("")) as client:
            steps = self._due(client, aims, history)
            if not steps:
                return []
            actor, writer = person_of(client).name, Writer(client, FIELD_MANAGER)
            with self._ledger.writing("the autopilot gives CPU to starting pods", PATIENCE_SECONDS) as ledger:
                going = steps_until_pause(steps, AutopilotEvent.BOOSTED, self._paused)
                return [self._done(ledger, actor, writer, step) for step in going]

    def _due(self, client: KubeClient, aims: Sequence[StartAim], history: LedgerHistory) -> list[BoostStep]:
        now = self._config.clock.now_seconds()
        longest = self._config.settings.section(PortraitSettings).startup_minutes * 60.0
        # Uids of what changes that are in force, or have no outcome, have written: their pods are left to them.
        open_changes = (s.change for s in history.statuses.values() if s.state.in_force or not s.state.settled)
        spared = {*history.decisions.boosts, *{write.uid for change in open_changes for write in change.writes}}
        workloads = [*(aim.workload for aim in aims), *(boost.workload for boost in history.boosts)]
        over: list[BoostStep] = []
        boost_starts: list[BoostStep] = []
        for namespace in sorted({workload.namespace for workload in workloads}):
            pods = list_readable(client, f"/api/v1/namespaces/{namespace}/pods", fieldSelector=NOT_ENDED)
            if pods is None:
                continue
            inside = [
                boost
                for boost in history.boosts
                if boost.workload.namespace == namespace and not self._refusals.rests(boost.uid, now)
            ]
            over += endings(pods, inside, now, longest)
            for aim in aims:
                if aim.workload.namespace == namespace:
                    boost_starts += beginnings(pods, aim, spared, now, longest)
        return [*over, *boost_starts[:MOST_HELPED]]

    def _done(self, ledger: Ledger, actor: str, writer: Writer, step: BoostStep) -> BoostStep:
        """Send a step, after its row in the ledger. A refused start is over; a refused restoration is retried later."""
        if step.event is AutopilotEvent.BOOSTED:
            self._write(ledger, actor, step.event, step, step.words)
        sentence = step.words
        try:
            if step.patch is not None:
                writer.send(step.patch)
        except (NotLeader, ClusterUnreachable):
            raise  # it is looked at again, by whoever leads then
        except CotenantError as error:
            sentence = f"{sentence}: {error.message}"
        if (step.event is AutopilotEvent.BOOST_ENDED) == (sentence == step.words):
            self._write(ledger, actor, AutopilotEvent.BOOST_ENDED, step, sentence)
            self._refusals.written(step.boost.uid)
        elif step.event is AutopilotEvent.BOOST_ENDED:
            self._refusals.refused(step.boost.uid, self._config.clock.now_seconds())
        return replace(step, words=sentence)

    def _write(self, ledger: Ledger, actor: str, event: AutopilotEvent, step: BoostStep, sentence: str) -> None:
        body = {**details_of(step.boost), "words": sentence}
        append(ledger, self._config.clock, actor, [(event, str(step.boost.workload), body)])


def steps_until_pause(steps: Iterable[Step], giving: AutopilotEvent, paused: Callable[[], str]) -> Iterator[Step]:
    """Yield the steps in their order, but end before the first one of event `giving` if the autopilot is paused."""
    for step in steps:
        if step.event is giving and paused():
            return
        yield step
