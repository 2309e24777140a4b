"""EDGE: publishes the state of every feature of the manager: in the log, metrics, a ConfigMap, Events and a probe.

This is a feature too: its ConfigMap is written like other objects, and if the right for it is missing, the other
features continue.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import structlog

from cotenant.autopilot.model import POLICIES
from cotenant.base.controllers.audit import Audit
from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.feature import (
    LEFT_OUT_STATE,
    STATUS_CONFIG_MAP,
    ControllerCondition,
    FeatureState,
    status_intent,
)
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.kube import EventRecorder, Mirror, Regarding
from cotenant.base.kube.client import unread_objects
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.kubernetes.protocol import OWN_GROUP, PROFILE_GROUP, QUOTA_GROUP, RESERVATION_PLANS, SCHEDULING_GROUP
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.base.text import agree

CHECK_SECONDS: Final = 2.0
MOST_TOLD: Final = 20
"""Most ignored objects that are reported in one round."""
LEFT_OUT: Final = "LeftOut"
"""Reason of the Event on an ignored object."""
QUIET: Final = frozenset(s for s in ControllerCondition if not s.broken and s is not ControllerCondition.DEGRADED)
"""States that are logged as information; the others are warnings."""
KINDS: Final = {
    POLICIES: (OWN_GROUP, "AutopilotPolicy"),
    RESERVATION_PLANS: (OWN_GROUP, "ReservationPlan"),
    "reservations": (SCHEDULING_GROUP, "Reservation"),
    "podmigrationjobs": (SCHEDULING_GROUP, "PodMigrationJob"),
    "podgroups": (QUOTA_GROUP, "PodGroup"),
    "elasticquotas": (QUOTA_GROUP, "ElasticQuota"),
    "elasticquotaprofiles": (PROFILE_GROUP, "ElasticQuotaProfile"),
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "configmaps": ("v1", "ConfigMap"),
}
"""Plural -> API version and kind of the objects that notes are about."""
log = structlog.get_logger(__name__)


class Board(Feature):
    """The feature `status`, which collects and publishes the state of all features. `report` is thread-safe."""

    name = "status"
    needs: tuple[str, ...] = ()
    interval_seconds: float = CHECK_SECONDS

    def __init__(
        self,
        namespace: str,
        audit: Audit,
        events: EventRecorder | None,
        mirrors: Mapping[str, Mirror[Any]] = MappingProxyType({}),
    ) -> None:
        """Create a board without states. It sends Events by `events`, and reports what `mirrors` could not read."""
        self._namespace, self._audit, self._events, self._mirrors = namespace, audit, events, mirrors
        self._left_out: dict[str, Mapping[str, str]] = {}
        self._left_out_told = FeatureState(LEFT_OUT_STATE, ControllerCondition.UP)
        self._states: dict[str, FeatureState] = {}
        self._shown: dict[str, FeatureState] = {}
        self._offered: dict[str, FeatureState] = {}
        self._lock = threading.Lock()

    @property
    def states(self) -> Mapping[str, FeatureState]:
        """The latest state of each feature that has reported one."""
        with self._lock:
            return dict(self._states)

    def report(self, state: FeatureState) -> None:
        """Record a feature's state after a round, and publish it if it has changed. Thread-safe."""
        self._audit.stands(state)
        with self._lock:
            before = self._states.get(state.feature)
            if state.same(before):
                return
            same = before is not None and before.condition is state.condition
            self._states[state.feature] = (
                replace(state, since_seconds=before.since_seconds) if same and before else state
            )
        log_state = log.info if state.condition in QUIET else log.warning
        log_state("feature", feature=state.feature, state=state.condition.value, message=state.message)
        if self._events and state.condition not in QUIET:
            self._events.record(self._subject(), state.condition.value, f"{state.feature}: {state.message}", True)

    def report_notes(self, notes: Sequence[ObjectNote]) -> None:
        """Record an Event for each note that is a warning or marked as an event.

        The Event is about the object that the note names (KIND/[NAMESPACE/]NAME), else about the status ConfigMap.
        """
        for note in notes:
            if self._events and (note.warning or note.event):
                kind, _, name = note.subject.partition("/")
                namespace, _, inside = name.rpartition("/")
                about = self._subject()
                if kind in KINDS and name:
                    own = self._namespace if kind == "configmaps" else ""
                    about = Regarding(*KINDS[kind], inside, namespace or own)
                self._events.record(about, note.reason, note.message, note.warning)

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - see Feature
        """Return the write of the status ConfigMap if a state has changed; also send the recorded Events."""
        # Tell each object that a mirror or a list cannot read, which all features leave out.
        unreadable = unread_objects()
        for mirror in self._mirrors.values():
            unreadable |= {str(ObjectVersion(mirror.path, *key, "")): why for key, why in mirror.refusals.items()}
        if unreadable != self._left_out.get(self.name, {}):
            self.leave_out(self.name, unreadable)
        if self._events:
            self._events.flush()
        states = {name: state for name, state in self.states.items() if name != self.name}
        # The condition that lists what is left out; None where it is nothing.
        with self._lock:
            every = sorted(
                {f"{subject}: {why}" for reasons in self._left_out.values() for subject, why in reasons.items()}
            )
        first = "; ".join(every[:MOST_TOLD])
        message = f"{agree(len(every), 'object is', 'objects are')} left out: {first}"
        if message != self._left_out_told.message:
            self._left_out_told = FeatureState(LEFT_OUT_STATE, ControllerCondition.UP, message, now_seconds)
        if left_out := self._left_out_told if every else None:
            states[LEFT_OUT_STATE] = left_out
        if not states or states == self._shown:
            return ControllerDecision()
        self._offered = states
        return ControllerDecision((status_intent(self._namespace, states),))

    def leave_out(self, feature: str, objects: Mapping[str, str]) -> None:
        """Report each of the `objects` that a feature ignores, and why, by an Event and in the status ConfigMap."""
        with self._lock:
            before, self._left_out[feature] = self._left_out.get(feature, {}), objects
        for subject, why in islice(objects.items() - before.items(), MOST_TOLD):
            sentence = f"{subject} is ignored until it changes; all other objects are used: {why}"
            self.report_notes([ObjectNote(subject, LEFT_OUT, sentence, warning=True)])

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Record that the status ConfigMap shows the states that `decide` returned last, if the write succeeded."""
        if outcomes and outcomes[0].ok:
            self._shown = self._offered

    def wrong(self) -> str:
        """Return the names and messages of the features that keep the manager from being ready.

        It is "" if every feature works, is on standby or waits for a person, a metric source or the store.
        """
        waiting = [
            s
            for s in self.states.values()
            if s.condition in (ControllerCondition.WAITING, ControllerCondition.UNREACHABLE) and not s.of_source
        ]
        return "; ".join(f"{s.feature}: {s.message}" for s in waiting)

    def _subject(self) -> Regarding:
        return Regarding("v1", "ConfigMap", STATUS_CONFIG_MAP, self._namespace)
