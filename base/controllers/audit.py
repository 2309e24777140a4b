"""EDGE: audit of writes: a log line for each (author, object, reason, old and new value), and the manager's metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter, Gauge, Histogram

from cotenant.base.controllers.contract import FIELD_MANAGER, ControllerDecision
from cotenant.base.controllers.feature import FeatureState
from cotenant.base.kubernetes.intent import Address, Delete, Intent, Outcome, Patch
from cotenant.base.logs.metrics import Metrics

DECIDE_BUCKETS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
log = structlog.get_logger(__name__)


class Audit:
    """The metrics and log lines of all features; every method may be called from any thread."""

    def __init__(self, metrics: Metrics) -> None:
        """Register the manager's metrics."""
        registry = metrics.registry
        self._up = Gauge(
            "cotenant_feature_up", "1 when the manager's feature works, else 0.", ["feature"], registry=registry
        )
        self._writes = Counter(
            "cotenant_writes_total", "Writes to the Kubernetes API.", ["feature", "outcome"], registry=registry
        )
        self._notes = Gauge(
            "cotenant_feature_notes", "Last decision's messages, by reason.", ["feature", "reason"], registry=registry
        )
        self._seconds = Histogram(
            "cotenant_decide_duration_seconds",
            "Time that a feature takes for one decision on the whole cluster.",
            ["feature"],
            buckets=DECIDE_BUCKETS_SECONDS,
            registry=registry,
        )
        self._noted: dict[str, set[str]] = {}

    def expect(self, features: Sequence[str]) -> None:
        """Declare the features that will run: each counts as down until its first decision is complete."""
        for feature in features:
            self._up.labels(feature)

    def record_decision(self, feature: str, decision: ControllerDecision, seconds: float) -> None:
        """Record a decision's duration and the number of its notes by reason; reasons without a note are set to 0."""
        self._seconds.labels(feature).observe(seconds)
        counts: dict[str, int] = {}
        for note in decision.notes:
            counts[note.reason] = counts.get(note.reason, 0) + 1
        for reason in self._noted.get(feature, set()) - counts.keys():
            self._notes.labels(feature, reason).set(0)
        for reason, count in counts.items():
            self._notes.labels(feature, reason).set(count)
        self._noted[feature] = {*self._noted.get(feature, set()), *counts}

    def sent(self, feature: str, outcomes: Sequence[Outcome], before: Mapping[Address, str]) -> None:
        """Log and count each write's outcome, routine writes at debug level; `before` has the objects' old values."""
        for outcome in outcomes:
            fields = action(feature, outcome.intent, before)
            if outcome.error is None:
                log_write = log.debug if getattr(outcome.intent, "routine", False) else log.info
                log_write("wrote", **fields)
                self._writes.labels(feature, "ok").inc()
            else:
                log.warning("not written", **fields, error=str(outcome.error))
                self._writes.labels(feature, type(outcome.error).__name__).inc()

    def stands(self, state: FeatureState) -> None:
        """Set the metric that shows whether a feature works."""
        self._up.labels(state.feature).set(int(state.condition.works))


def action(feature: str, intent: Intent, before: Mapping[Address, str]) -> dict[str, str]:
    """Return the author, object, reason, old value and new value of a write as fields of a log line."""
    return {
        "who": f"{FIELD_MANAGER}/{feature}",
        "object": str(intent.address),
        "verb": type(intent).__name__.lower(),
        "subresource": "" if isinstance(intent, Delete) else intent.subresource,
        "why": intent.why,
        "old": before.get(intent.address, ""),
        "new": new_value(intent),
    }


def new_value(intent: Intent) -> str:
    """Return as JSON what a write sends: a patch's operations, or the body without metadata; "" for a Delete."""
    if isinstance(intent, Delete):
        return ""
    if isinstance(intent, Patch):
        return msgspec.json.encode(list(intent.operations)).decode()
    value = {key: part for key, part in intent.body.items() if key not in {"apiVersion", "kind", "metadata"}}
    return msgspec.json.encode(value).decode()
