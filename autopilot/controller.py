"""EDGE: the manager's controller of the autopilot, which runs one round at each interval, and its metrics.

A round first decides and publishes the status of the policies, then makes its changes by the code that carries out a
change that a person accepts, with a client that writes only under the Lease. In a dry run it stops after the decision.
"""

from __future__ import annotations

import os
from collections import Counter as Count
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from cotenant.autopilot.decide.floors import FloorStep
from cotenant.autopilot.decide.history import ActState
from cotenant.autopilot.decide.round_order import helped_starts
from cotenant.autopilot.model import POLICIES, QueueVerdict
from cotenant.autopilot.notes import ChatNotes, floor_news, news_of
from cotenant.autopilot.rounds.acts import ActConfig, ActOutcome, LedClient
from cotenant.autopilot.rounds.cluster_state import policy_address
from cotenant.autopilot.rounds.floors import floor_forecasts
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.controllers.sender import Leadership
from cotenant.base.http.webhook import receiver_of
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Apply, Intent, Outcome
from cotenant.base.logs.metrics import Metrics
from cotenant.base.people import Person
from cotenant.base.process.clock import Clock
from cotenant.base.reasons import Reason
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import NotifySettings, StoreSettings, store_url
from cotenant.base.store import Store
from cotenant.changes.model.settings import ActionSettings, anchor_namespace, ledger_location
from cotenant.changes.soak.usage_comparison import comparison_of
from cotenant.profiler.settings import ProfilerSettings
from cotenant.recommender.stored_recommendations import recommendations_of, requested_millicores

LONGEST_PAUSE_SECONDS = 60.0

log = structlog.get_logger(__name__)


class AutopilotController(Feature):
    """The manager's controller that runs one round of the autopilot at each interval."""

    name = "autopilot"
    by_clock = True
    needs: tuple[str, ...] = ()

    def __init__(
        self,
        rounds: Rounds,
        interval_seconds: float,
        registry: CollectorRegistry | None = None,
        start_up_seconds: float = LONGEST_PAUSE_SECONDS,
        notes: ChatNotes | None = None,
    ) -> None:
        """Run no round yet. `start_up_seconds` is the pause between two checks for pods that start."""
        self._rounds = rounds
        self.interval_seconds = interval_seconds
        self._interval_seconds = interval_seconds
        self._start_up_seconds = start_up_seconds
        self._last = self._before = RoundReading(0.0)
        self._chat = notes
        self._due_seconds = 0.0
        self._reading: RoundReading | None = None
        self._shown: dict[str, Intent] = {}
        self._notes: tuple[ObjectNote, ...] = ()
        self._metrics = AutopilotMetrics(registry) if registry else None

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - rounds go by time
        """Decide a round and return the changed statuses of policies as writes; `sent` makes the round's changes."""
        is_early = self._due_seconds - self._interval_seconds <= now_seconds < self._due_seconds
        if is_early:  # a clock that went back does not hold a round up
            self.interval_seconds = self._seconds_to_next_round(now_seconds)
            return ControllerDecision(notes=self._notes)
        self._due_seconds = 0.0  # a round that cannot be read is due again as soon as the loop asks
        self._reading = reading = self._rounds.read(now_seconds)
        self._due_seconds = now_seconds + self._interval_seconds
        self._last = reading
        self.interval_seconds = self._seconds_to_next_round(now_seconds)
        if self._metrics:
            self._metrics.show(reading)
        intents = []
        for acting in reading.policies:
            policy, address = acting.policy, policy_address(acting.policy)
            status = {
                "observedGeneration": policy.generation,
                "mode": acting.does.value,
                "reason": reading.reason(acting),
                "narrowed": list(acting.narrowed),
                "workloads": len(reading.of(policy)),
                "queued": reading.queued(policy),
                "underWay": reading.under_way(policy),
                "waiting": reading.waiting(policy),
            }
            manifest = address.manifest("AutopilotPolicy", status=status)
            intent = Apply(address, manifest, "status", why="the policy's status")
            if self._shown.get(str(address)) != intent:  # not what the server took last
                intents.append(intent)
        self._notes = tuple(_notes(reading))
        return ControllerDecision(tuple(intents), self._notes)

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Make the round's changes, set minReplicas, and send notifications; called only on a leader that may write."""
        self._shown |= {str(o.intent.address): o.intent for o in outcomes if o.ok}
        reading, self._reading = self._reading, None
        if reading is not None:
            try:
                moved, acts = self._rounds.carry_out(reading)
            except Exception:
                self._due_seconds = 0.0
                raise
            for status in moved:
                log.info("autopilot change moved", change=status.change.id, state=status.state, words=status.words)
            for act in acts:
                ids = [status.change.id for status in act.changes]
                log.info("autopilot act", workload=str(act.workload), changes=ids, words=act.words)
            if self._metrics:
                self._metrics.acted(acts)
            before, self._before = self._before, reading  # news that cannot be told is not tried in each round
            floors: list[FloorStep] = []
            try:
                floors = self._rounds.hold_floors(reading)
            finally:  # what was done is told, whatever becomes of the floors
                if self._chat:
                    self._chat.send([*news_of(before, reading, moved, acts), *floor_news(floors)], reading.now_seconds)
            for floor in floors:
                fields = {"workload": str(floor.lent.workload), "words": floor.words, "refused": floor.refused}
                log.info("autopilot floor", step=floor.event, **fields)
        for step in self._rounds.help_starts(self._last):
            pod = step.boost.write.address.name
            log.info("autopilot start", step=step.event, workload=str(step.boost.workload), pod=pod, words=step.words)

    def _seconds_to_next_round(self, now_seconds: float) -> float:
        """Return the seconds until the next round, or until starting pods are read again if a policy may help them."""
        watches = helped_starts(self._last.queue, None) or self._last.history.boosts
        seconds_left = self._due_seconds - now_seconds
        return min(seconds_left, self._start_up_seconds) if watches else seconds_left


def _notes(reading: RoundReading) -> Iterator[ObjectNote]:
    for policy in reading.policies:
        if policy.policy.refused or policy.gap:
            yield ObjectNote(
                f"{POLICIES}/{policy.policy}", "PolicyRefused", policy.policy.refused or policy.gap, warning=True
            )
    if reading.halt is not None and reading.halt.reason is Reason.AUTOPILOT_STOPPED:
        yield ObjectNote("autopilot", "AutopilotStopped", reading.halt.words, warning=True)


START_UP_SECONDS: Final = 5.0
"""Time between two rounds over starting pods, if a policy helps starts. A start takes tens of seconds; five are soon
enough to help it."""


def autopilot_controller(
    client: KubeClient,
    settings: SettingSections,
    cluster: str,
    leadership: Leadership,
    metrics: Metrics | None,
    clock: Clock,
) -> AutopilotController:
    """Return the controller of the autopilot; no request is sent yet."""
    store = Store(store_url(settings.section(StoreSettings), os.environ), cluster)

    @contextmanager
    def access(_who: Person) -> Iterator[KubeClient]:
        """Yield a client with the manager's own account for every caller: the autopilot acts for no other user."""
        with closing(LedClient.of(client, leadership.require)) as led:
            yield led

    config = ActConfig(
        access=access,
        ledger=ledger_location(settings.section(ActionSettings), os.environ),
        settings=settings,
        clock=clock,
        requested_millicores=lambda: requested_millicores(store),
        anchor_namespace=anchor_namespace(settings),
        **comparison_of(settings.section(ProfilerSettings).prometheus),
    )
    registry = metrics.registry if metrics else None
    own = settings.section(AutopilotSettings)
    rounds = Rounds(config, recommendations_of(store), lambda: floor_forecasts(store))
    notes = ChatNotes(settings.section(NotifySettings), cluster, receiver_of(settings.section(NotifySettings).url_file))
    return AutopilotController(rounds, own.interval_seconds, registry, START_UP_SECONDS, notes)


HALTS = (Reason.AUTOPILOT_PAUSED, Reason.AUTOPILOT_STOPPED, Reason.AUTOPILOT_CLUSTER_IN_TROUBLE)


class AutopilotMetrics:
    """Metrics of the last round, and counts of the changes since the process started."""

    def __init__(self, registry: CollectorRegistry) -> None:
        word = "cotenant_autopilot"
        self._queue = Gauge(
            f"{word}_workloads", "Workloads in the last round, by decision.", ["decision"], registry=registry
        )
        self._changes = Gauge(
            f"{word}_changes", "Changes of the autopilot in the ledger by state.", ["state"], registry=registry
        )
        self._halted = Gauge(
            f"{word}_halted", "1 while the autopilot changes nothing for this reason.", ["reason"], registry=registry
        )
        self._acts = Counter(
            f"{word}_acts_total", "Attempted changes by outcome: accepted or refused.", ["outcome"], registry=registry
        )
        for outcome in ("accepted", "refused"):
            self._acts.labels(outcome)

    def show(self, reading: RoundReading) -> None:
        """Set the gauges to the values of this round."""
        verdicts = Count(entry.verdict for entry in reading.queue)
        for verdict in QueueVerdict:
            self._queue.labels(verdict.value).set(verdicts[verdict])
        states = Count(act.state for act in reading.acts)
        for state in ActState:
            self._changes.labels(state.value).set(states[state])
        for reason in HALTS:
            self._halted.labels(reason.value).set(reading.halt is not None and reading.halt.reason is reason)

    def acted(self, outcomes: Sequence[ActOutcome]) -> None:
        """Count the changes that were accepted or refused, without those that a pause prevented."""
        for outcome in outcomes:
            if not outcome.paused:
                self._acts.labels("accepted" if outcome.changes else "refused").inc()
