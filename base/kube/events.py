"""EDGE: Kubernetes Events: one object for repeated occurrences, written by server-side apply.

`record` only stores the occurrence, from any thread, and never fails; `flush` writes what may be written now. The API
server does not let an Event's note and first time change: both are those of its first occurrence, even after a restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cotenant.base.errors import ClusterUnreachable, CotenantError, NotLeader
from cotenant.base.kube.client import KubeClient
from cotenant.base.kube.series import NOTHING_MORE, Backlog, EventOccurrences, EventSubject, Regarding
from cotenant.base.kube.writes import Writer, no_lease_required
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import micro_moment
from cotenant.base.process.clock import Clock

API_VERSION: Final = "events.k8s.io/v1"
NOTE_BYTES: Final = 1024
"""Longest note that the API server takes."""


class _EventCount(msgspec.Struct):
    count: int = 0


class _EventObject(msgspec.Struct, rename="camel"):
    event_time: str | None = None
    note: str = ""
    series: _EventCount | None = None


class EventRecorder:
    """A recorder of the Events of one component, such as "cotenant-manager"."""

    def __init__(
        self, client: KubeClient, component: str, clock: Clock, guard: Callable[[], None] = no_lease_required
    ) -> None:
        """Create a recorder; nothing is written before `flush`; `guard` is as for a Writer."""
        self.error: CotenantError | None = None
        """The error that the last write of an Event met, or None."""
        self._component = component
        self._clock = clock
        self._client = client.sibling()
        self._writer = Writer(self._client, component, guard)
        self._backlog = Backlog()
        self._lock = threading.Lock()
        self._flushing = threading.Lock()

    def record(self, regarding: Regarding, reason: str, note: str, warning: bool = False, template: str = "") -> None:
        """Record an Event on an object, to be written by the next `flush`.

        `reason` is in CamelCase; `template` is the note without the parts that differ each time (numbers, times).
        """
        self.record_occurrence(EventSubject(regarding, reason, template or note, warning), note)

    def record_occurrence(
        self, subject: EventSubject, note: str, annotations: Mapping[str, str] = NOTHING_MORE
    ) -> None:
        """Record an occurrence of the Event that `subject` identifies; `annotations` replace those of earlier ones."""
        with self._lock:
            self._backlog.add(subject, note, self._clock.now_seconds(), annotations)

    def flush(self) -> int:
        """Write the Events that are due and return their number; failed writes are retried at a later call."""
        written = 0
        with self._flushing:
            with self._lock:
                due = self._backlog.due(self._clock.now_seconds())
            for subject, series in due:
                try:
                    self._write(subject, series)
                except (NotLeader, ClusterUnreachable) as error:
                    self.error = error
                    break
                except CotenantError as error:
                    self.error = error
                    # Note that a series was tried just now, so that one that the server refuses does not hold up the
                    # others
                    with self._lock:
                        self._backlog.told(subject, 0, self._clock.now_seconds())
                else:
                    self.error = None
                    written += 1
        return written

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _write(self, subject: EventSubject, series: EventOccurrences) -> None:
        """Apply the Event, with the pending occurrences added to the count that the server has."""
        about = subject.regarding
        address = Address(API_VERSION, "events", subject.event_name(self._component), about.namespace or "default")
        stored = self._client.get(address.path, _EventObject)
        self._writer.send(Apply(address, _body(address, subject, series, stored, self._component)))
        with self._lock:
            self._backlog.told(subject, series.pending, self._clock.now_seconds())


def _body(
    address: Address, subject: EventSubject, series: EventOccurrences, stored: _EventObject | None, component: str
) -> dict[str, Any]:
    before = max(1, stored.series.count if stored.series else 0) if stored else 0
    count = before + series.pending
    about = subject.regarding
    regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
    regarding |= {"namespace": about.namespace} if about.namespace else {}
    regarding |= {"uid": about.uid} if about.uid else {}
    annotations = {"annotations": dict(series.annotations)} if series.annotations else {}
    body = {
        "apiVersion": API_VERSION,
        "kind": "Event",
        "metadata": {"name": address.name, "namespace": address.namespace, **annotations},
        "eventTime": (stored and stored.event_time) or micro_moment(series.first_seconds),
        "reportingController": component,
        "reportingInstance": component,
        "action": subject.reason,
        "reason": subject.reason,
        "type": "Warning" if subject.warning else "Normal",
        "note": stored.note if stored else series.note.encode()[:NOTE_BYTES].decode(errors="ignore"),
        "regarding": regarding,
    }
    if count > 1:
        body["series"] = {"count": count, "lastObservedTime": micro_moment(series.last_seconds)}
    return body
