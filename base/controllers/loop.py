"""EDGE: the control loop, one thread per feature: wakes on a change or an interval, decides on mirrors, sends writes.

Level-triggered: a decision uses the whole current state, never a history of events, so that a lost event costs only one
cycle. A feature freezes (does nothing; it does not write zeros) while a mirror that it needs is missing or stale; its
failures affect no other feature and are retried after growing pauses; only the Lease's holder writes.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.controllers.audit import Audit, action
from cotenant.base.controllers.clocks import server_disagrees
from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.feature import (
    ControllerCondition,
    FeatureState,
    condition_of_error,
    condition_of_failure,
    is_of_source,
    message_of,
)
from cotenant.base.controllers.isolation import Watched, compute_without_failing, standing_items
from cotenant.base.controllers.sender import Leadership, Sender
from cotenant.base.errors import (
    ClusterAbsent,
    ClusterError,
    ClusterForbidden,
    CotenantError,
    NoData,
    NotLeader,
    SourceError,
    StoreError,
)
from cotenant.base.kube import Mirror
from cotenant.base.kube.watch import LONGEST_WHY
from cotenant.base.kubernetes.intent import Intent, Outcome
from cotenant.base.process.clock import BelievableClock, Clock, ServerClock
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.text import agree

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 15.0
"""After a failure; a returning API server is noticed within this time."""
REST: Final = 4.0
LONGEST_REST_SECONDS: Final = 5.0
"""Longest pause after a decision, which is REST times its duration (so that thousands of nodes that report in turn take
a fifth of a core), minus the time in which its writes were sent."""
CLOSING_PAUSE_SECONDS: Final = 0.3
"""Pause between two attempts at an orderly shutdown: by then a mirror shows our own last write."""
NOT_MADE: Final = "NotMade"
"""Reason of the Event on an object whose request could not be fulfilled."""
MOST_ROUNDS: Final = 5
"""Rounds of `settle`: a CR, then its status, then nothing."""

Key = tuple[str, str]
Changes = Mapping[str, set[Key]]
_OF_OTHERS: Final = (ClusterError, SourceError, StoreError, NoData, MemoryError)  # errors that are no object's fault
_Place = tuple[str, Key]  # a mirror, and the object in it
_LeftOutValue = tuple[object, str]  # what the mirror has of an object that is left out, and why it is
log = structlog.get_logger(__name__)


class Feature(Protocol):
    """A controller as the loop runs it, in one thread; controllers inherit the defaults."""

    name: str
    needs: tuple[str, ...]
    """Mirrors (watched collections) without which the feature does not decide, and whose changes wake it."""
    interval_seconds: float
    optional: tuple[str, ...] = ()
    """Further mirrors whose changes wake the feature; a cluster may lack them."""
    listed: frozenset[str] = frozenset()
    """Resources that the feature lists again for each decision, in addition to its mirrors."""
    coalesce_seconds: float | None = None
    """Seconds for which changes are gathered before a decision; None for the manager's setting."""
    send_seconds: float | None = None
    """Seconds of writing after which the feature decides again, even if writes remain; None to finish all first."""
    unmade: Mapping[str, str] = MappingProxyType({})
    """Reasons why a write that an object needs was not made, by that object (`Create.asker`), as of the last round."""
    by_clock: bool = False
    """True if decisions depend on the age of reports or on times that people wrote: a doubtful clock freezes them."""
    by_server_time: bool = False
    """True if the feature ends objects by the API server's time; it does not decide until that time is known."""

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:
        """Return the writes to make; `changes` has, by watched collection, the keys changed since the last success."""

    def sent(self, outcomes: Sequence[Outcome]) -> None:  # noqa: ARG002 - for those that remember writes
        """Receive the outcome of each write of the last decision; ignored by default: watches show what was written."""
        return

    def decide_at_shutdown(self, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - for those that depend on time
        """Return the writes to make at an orderly shutdown, by default none; called again until it returns none."""
        return ControllerDecision()


@dataclass(slots=True)
class ControllerRound:
    """The decision of one cycle of a feature, and the outcomes of its writes."""

    decision: ControllerDecision = field(default_factory=ControllerDecision)
    outcomes: list[Outcome] = field(default_factory=list)


class Hub:
    """Passes changes of the watched collections to all features, because a `Mirror` reports each change only once."""

    def __init__(self, mirrors: Mapping[str, Mirror[object]], wake: threading.Event) -> None:
        """Create the hub; `wake` is the event that the mirrors set at a change."""
        self.mirrors = mirrors
        self._wake = wake
        self._runners: list[FeatureRunner] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)

    def join(self, runner: FeatureRunner) -> None:
        """Register a feature to be informed of changes."""
        self._runners.append(runner)

    def start(self) -> None:
        """Start to distribute changes."""
        self._thread.start()

    def stop(self) -> None:
        """Stop distributing changes, after the end of the current distribution."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def dispatch(self) -> None:
        """Read the changes of all watched collections and pass them to every feature."""
        self._wake.clear()
        with self._lock:
            changes = {name: keys for name, mirror in self.mirrors.items() if (keys := mirror.changes())}
        for runner in self._runners if changes else ():
            runner.on_change(changes)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self.dispatch()


class RoundReporter(Protocol):
    """A receiver of the results of every feature's cycles; called from any thread."""

    def report(self, state: FeatureState) -> None:
        """Record the condition of a feature after a cycle."""

    def report_notes(self, notes: Sequence[ObjectNote]) -> None:
        """Record a feature's notes on objects."""

    def leave_out(self, feature: str, objects: Mapping[str, str]) -> None:
        """Record the objects that a feature leaves out now, each with the reason; earlier records are replaced."""


@dataclass(frozen=True, slots=True)
class LoopContext:
    """The objects that the loops of all features share."""

    hub: Hub
    leadership: Leadership
    clock: Clock
    settings: ManagerSettings
    audit: Audit
    board: RoundReporter
    server_clock: ServerClock | None = None
    """The API server's clock, with which ours is compared; None: ours differs from the machine's on purpose."""


class FeatureRunner:
    """The loop of one feature; if the setting `manager.write` is off, the feature decides but nothing is sent."""

    def __init__(self, feature: Feature, sender: Sender, context: LoopContext) -> None:
        self.feature = feature
        self.last = ControllerRound()
        self.rounds = 0
        """Number of decisions so far."""
        self._sender, self._context = sender, context
        self._settings = context.settings
        self._heard: dict[str, set[Key]] = {}
        self._lock = threading.Lock()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._failures, self._took, self._sending = 0, 0.0, 0.0
        self._hears: tuple[str, ...] = (*feature.needs, *feature.optional)
        own_seconds = feature.coalesce_seconds
        self._gather_seconds = context.settings.coalesce_seconds if own_seconds is None else own_seconds
        self._send_seconds = feature.send_seconds
        self._left_out: dict[_Place, _LeftOutValue] = {}
        self._watched: Watched[_Place] = Watched(
            feature.name, lambda place: context.hub.mirrors[place[0]].version(place[1])
        )
        self._jitter = random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._thread = threading.Thread(target=self.run, name=feature.name, daemon=True)

    def start(self) -> None:
        """Run the feature's cycles in a separate thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the feature's cycles, and wait for the end of the current one."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        """Make the feature's last writes at an orderly shutdown (`decide_at_shutdown`), after `stop`; never raises.

        It decides a few times, because the watched collections may not show the feature's own last write yet.
        """
        try:
            if not self._settings.write:
                return
            for _ in range(MOST_ROUNDS):
                if self._blocking_state():
                    return
                decision = self.feature.decide_at_shutdown(self._now_seconds())
                if not decision.intents:
                    return
                outcomes = self._sender.send(decision.intents)
                self._context.audit.sent(self.feature.name, outcomes, decision.before)
                if all(outcome.ok for outcome in outcomes):
                    return
                time.sleep(CLOSING_PAUSE_SECONDS)
        except Exception:  # the others are to end in good order
            log.exception("feature did not stop cleanly", feature=self.feature.name)
        finally:
            self._sender.close()

    def on_change(self, changes: Changes) -> None:
        """Take note of changed objects, and wake the feature if it uses them."""
        relevant = {name: changes[name] for name in self._hears if name in changes}
        with self._lock:
            for name, keys in relevant.items():
                self._heard.setdefault(name, set()).update(keys)
        if relevant:
            self._wake.set()

    def run(self) -> None:
        """Run cycles until `stop` is called."""
        while not self._stopping.is_set():
            state = self.round()
            self._context.board.report(state)
            if not state.condition.broken or state.condition is ControllerCondition.STALE:
                self._failures = 0
                quiet = self._settings.retry_seconds
                more = bool(self.last.outcomes)  # a new object's status is decided once the object is there
                self._wake.wait((0 if more else self.feature.interval_seconds) if state.condition.works else quiet)
                rest = min(REST * self._took, LONGEST_REST_SECONDS) - self._sending
                self._stopping.wait(max(self._gather_seconds, rest))
            else:
                self._stopping.wait(self._pause(state.condition))
            self._wake.clear()

    def settle(self) -> list[dict[str, str]]:
        """Run cycles until nothing is left to send; return the audit fields of each write (in a dry run: each due)."""
        actions: list[dict[str, str]] = []
        self._send_seconds = None
        for _ in range(MOST_ROUNDS):
            state = self.round()
            self._context.board.report(state)
            decision = self.last.decision
            intents = [o.intent for o in self.last.outcomes] if self._settings.write else decision.intents
            actions += [action(self.feature.name, intent, decision.before) for intent in intents]
            if not self.last.outcomes or not state.condition.works:
                break
        return actions

    def round(self) -> FeatureState:
        """Run one cycle: decide, send the writes and return the feature's state; never raises."""
        self.last = ControllerRound()
        try:
            return self._round()
        except Exception as error:  # one feature's fault must not end the others
            state = self._failed_state(error)
            if state.condition is ControllerCondition.FAILED:
                log.exception("feature failed", feature=self.feature.name)
            return state

    def _round(self) -> FeatureState:
        blocked = self._blocking_state()
        if blocked:
            return blocked
        self._context.hub.dispatch()
        with self._lock:
            changes, self._heard = self._heard, {}

        for name, keys in changes.items():
            self._sender.seen(self._context.hub.mirrors[name].path, keys)
        started = time.monotonic()
        try:
            decision = self._decide(changes)
        except BaseException:
            # Queue these changes again for the next decision, since the one that took them has failed
            with self._lock:
                for name, keys in changes.items():
                    self._heard.setdefault(name, set()).update(keys)
            raise
        self._took = time.monotonic() - started
        self._context.audit.record_decision(self.feature.name, decision, self._took)
        self._context.board.report_notes(decision.notes)
        self.rounds += 1
        self._sending = 0.0
        self.last = ControllerRound(decision)
        if not self._settings.write:
            due = f"{agree(len(decision.intents), 'write is', 'writes are')} due; a dry run sends none."
            return self._trouble_state(decision) or self._state(ControllerCondition.DRY_RUN, due)
        return self._sent(self._sender.due(decision.intents), decision)

    def _decide(self, changes: Changes) -> ControllerDecision:
        """Let the feature decide without the objects on which it fails; each is tried again once it has changed."""
        mirrors, before = self._context.hub.mirrors, self._left_out
        self._left_out = {
            (name, key): left_out
            for (name, key), left_out in self._left_out.items()
            if mirrors[name].snapshot().get(key) == left_out[0]
        }
        if self._watched.stood_still():
            self._leave_out_standing()
        changed = [(name, key) for name, keys in changes.items() for key in keys]
        try:
            with self._watched.note(self._watched.parts_of(changed)):
                decision = self._decide_without(self._left_out, changes)
        except _OF_OTHERS:
            raise
        except Exception as error:  # noqa: BLE001 - it may be any error, of one object
            decision = self._decide_for_the_others(changes, error)
        if self._left_out != before or not self.rounds:
            left_out = {
                str(ObjectVersion(mirrors[name].path, *key, "")): why
                for (name, key), (_, why) in self._left_out.items()
            }
            self._context.board.leave_out(self.feature.name, left_out)
        return decision

    def _leave_out_standing(self) -> None:
        """Leave out the objects on which an earlier process hung in a decision of the feature."""
        present = self._present()
        changes = {name: set(values) for name, values in present.items()}

        def decide(without: Collection[_Place]) -> ControllerDecision:
            return self._decide_without(self._left_out | dict.fromkeys(without, (None, "")), changes)

        places = [(name, key) for name, values in present.items() for key in values]
        standing = standing_items(self._watched, places, decide, _OF_OTHERS)
        self._left_out |= {(name, key): (present[name][key], why) for (name, key), why in standing.items()}

    def _present(self) -> dict[str, Mapping[Key, object]]:
        """Return the current content of the mirrors that the feature uses."""
        mirrors = self._context.hub.mirrors
        return {name: mirrors[name].snapshot() for name in self._hears if name in mirrors}

    def _decide_without(self, objects: Mapping[_Place, _LeftOutValue], changes: Changes) -> ControllerDecision:
        with ExitStack() as hidden:
            for name in {name for name, _ in objects}:
                reasons = {key: pair[1] for (mirror, key), pair in objects.items() if mirror == name}
                hidden.enter_context(self._context.hub.mirrors[name].hide(reasons))
            return self.feature.decide(changes, self._now_seconds())

    def _decide_for_the_others(self, changes: Changes, error: Exception) -> ControllerDecision:
        """Decide without the few objects that cause the error, searching changed ones first; else raise the error."""
        present = self._present()
        why = f"{self.feature.name} fails on this object: {type(error).__name__}: {error}"[:LONGEST_WHY]
        for among in (changes, {name: set(values) for name, values in present.items()}):
            places = sorted((name, key) for name, keys in among.items() for key in keys if key in present[name])
            # what was hidden for a while has changed for the feature
            again = {name: {*changes.get(name, ()), *among.get(name, ())} for name in {*changes, *among}}

            def left_out(failing: Collection[_Place]) -> dict[_Place, _LeftOutValue]:
                return {**self._left_out, **{(name, key): (present[name][key], why) for name, key in failing}}

            def decide(without: Collection[_Place], again: Changes = again) -> ControllerDecision:
                return self._decide_without(left_out(without), again)

            try:
                decision, failing = compute_without_failing(places, decide, _OF_OTHERS, self._watched)
            except _OF_OTHERS:
                raise
            except Exception:  # noqa: BLE001, S112 - none of these objects explains it
                continue
            self._left_out = left_out(failing)
            return decision
        raise error

    def _sent(self, intents: Sequence[Intent], decision: ControllerDecision) -> FeatureState:
        started = time.monotonic()
        outcomes = self._sender.send(intents, self._send_seconds)
        self._sending = time.monotonic() - started
        self.last = ControllerRound(decision, outcomes)
        self.feature.sent(outcomes)
        self._context.audit.sent(self.feature.name, outcomes, decision.before)
        self.feature.unmade = {asker: message_of(e) for asker, e in self._sender.unmade(decision.intents).items()}
        object_notes = (ObjectNote(asker, NOT_MADE, why, warning=True) for asker, why in self.feature.unmade.items())
        self._context.board.report_notes(tuple(object_notes))
        refusal = self._sender.refusal(decision.intents)
        errors = [o.error for o in outcomes if o.error is not None] or ([refusal] if refusal else [])
        worst = min(errors, key=lambda e: _GRAVITY.get(condition_of_error(e), 0), default=None)
        if worst is not None:
            more = f" ({len(errors)} writes)" if len(errors) > 1 else ""
            return self._state(condition_of_error(worst), message_of(worst) + more)
        if trouble := self._trouble_state(decision):
            return trouble
        warnings = [note for note in decision.notes if note.degrades]
        if warnings:
            return self._state(ControllerCondition.DEGRADED, f"{warnings[0].subject}: {warnings[0].message}")
        return self._state(ControllerCondition.UP)

    def _trouble_state(self, decision: ControllerDecision) -> FeatureState | None:
        """Return the state of a feature that could decide only in part, or None."""
        return self._failed_state(decision.trouble) if decision.trouble is not None else None

    def _failed_state(self, error: Exception) -> FeatureState:
        state = self._state(condition_of_failure(error), message_of(error))
        return replace(state, of_source=is_of_source(error))

    def _blocking_state(self) -> FeatureState | None:
        """Return the state that forbids the feature to decide now, or None."""
        if self._settings.write and not self._context.leadership.is_leading:
            return self._state(ControllerCondition.STANDBY, self._context.leadership.description)
        for name in self.feature.needs:
            mirror = self._context.hub.mirrors[name]
            if isinstance(mirror.error, ClusterForbidden | ClusterAbsent):
                return self._state(condition_of_error(mirror.error), message_of(mirror.error))
            if mirror.error is not None:
                return self._state(ControllerCondition.UNREACHABLE, message_of(mirror.error))
            if not mirror.wait_synced(0):
                return self._state(ControllerCondition.WAITING, f"{name} are being listed.")
            if mirror.age_seconds() > self._settings.stale_seconds:
                return self._state(ControllerCondition.STALE, f"the watch of {name} is stale; nothing is changed.")
        doubt = self._clock_doubt() if self.feature.by_clock else ""
        if self.feature.by_server_time:
            doubt = self._unknown_time()
        return self._state(ControllerCondition.STALE, f"clock: {doubt}") if doubt else None

    def _now_seconds(self) -> float:
        """Return the manager's time, or the API server's while the two disagree."""
        return BelievableClock(self._context.clock, self._context.server_clock).now_seconds()

    def _unknown_time(self) -> str:
        """Return a sentence if the API server's time, by which objects are dated, is unknown but needed; else ""."""
        server = self._context.server_clock
        if server is None or server.now_seconds() is not None:
            return ""
        return "no answer of the API server had a Date header, so its time is unknown. Does a proxy remove the header?"

    def _clock_doubt(self) -> str:
        """Return a sentence why the manager's clock cannot be trusted, or ""."""
        server = self._context.server_clock
        if server is None or server.now_seconds() is None:
            return self._unknown_time()
        mirror: Mirror[object] | None = self._context.hub.mirrors.get("nodemetrics")
        reports = (
            report for report in (mirror.snapshot() if mirror else {}).values() if isinstance(report, NodeMetric)
        )
        times = (report.update_seconds for report in reports if report.update_seconds is not None)
        return server_disagrees(self._context.clock.now_seconds(), server.now_seconds(), times)

    def _pause(self, condition: ControllerCondition) -> float:
        """Return the seconds to wait after a failure, growing with each; longest if only a person can fix the cause."""
        self._failures += 1
        if condition is ControllerCondition.ABSENT:
            return self._settings.feature_retry_seconds
        is_forbidden = condition is ControllerCondition.FORBIDDEN
        longest = self._settings.feature_retry_seconds if is_forbidden else LONGEST_PAUSE_SECONDS
        wait = min(longest, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
        return wait * (0.5 + 0.5 * self._jitter.random())

    def _state(self, condition: ControllerCondition, message: str = "") -> FeatureState:
        return FeatureState(self.feature.name, condition, message, self._context.clock.now_seconds())


_GRAVITY: Final = {
    ControllerCondition.STANDBY: -5,
    ControllerCondition.UNREACHABLE: -4,
    ControllerCondition.FORBIDDEN: -3,
    ControllerCondition.ABSENT: -2,
    ControllerCondition.FAILED: -1,
}
"""Rank of a round's errors, of which the lowest is reported: it explains the others. One object's refusal is last."""


class AlwaysLeads:
    """The leadership of a run without competitors: `--once`, a dry run, a test."""

    is_leading = True
    description = "This process leads."
    error: CotenantError | None = None
    transitions = 0

    def require(self) -> None:
        """Permit every write."""


class NoElection:
    """The leadership of a process that must not write at all, such as a dry run."""

    is_leading = True
    description = "A dry run."

    def require(self) -> None:
        """Raise NotLeader, so that no write is sent."""
        raise NotLeader("a dry run writes nothing")
