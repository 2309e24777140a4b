"""EDGE: writes the node's NodeMetric once a minute from its own thread, with the node's CPUs, GPUs and an annotation.

As with Koordinator's agent, updateTime in the status shows that an agent is running, and the manager then does not
write this node's usage. The manager owns the spec, which says how usage is measured; if the object does not exist, the
agent creates it. The Node's annotation (`suppressed`) is for schedulers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from cotenant.base.colocation.nodemetric import PLURAL, CollectPolicy, from_spec
from cotenant.base.errors import ClusterAbsent, CotenantError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.protocol import SLO_GROUP
from cotenant.enforcer.apply.eviction_worker import FIELD_MANAGER
from cotenant.enforcer.report.device_writer import DevicePublisher
from cotenant.enforcer.report.topology_writer import TopologyPublisher
from cotenant.enforcer.report.usage import own_object

PATH: Final = f"/apis/{SLO_GROUP}/{PLURAL}"
Made = Callable[[CollectPolicy], Apply | None]
"""Returns the write of the status for a policy; called in the reporter's thread."""
Noted = Callable[[], Apply | None]
"""Returns the write to the Node, None if nothing changed; called in the reporter's thread."""
NOTE_SECONDS: Final = 300.0
"""Time between two writes to the Node: every scheduler and kubelet receives each."""


@dataclass(frozen=True, slots=True)
class Whose:
    """The node's name, and a function that returns its uid, "" as long as that is not known."""

    name: str
    uid: Callable[[], str]


class Reporter:
    """A thread that writes the node's NodeMetric at intervals until it is stopped."""

    def __init__(
        self,
        client: KubeClient,
        node: Whose,
        make_report: Made,
        interval_seconds: float,
        noted: Noted | None = None,
        publishers: Sequence[DevicePublisher | TopologyPublisher] = (),
    ) -> None:
        """Create a reporter; `interval_seconds` applies until the NodeMetric's own spec sets another interval."""
        self.error = "not reported yet"
        """Why the last report did not go out, or empty."""
        self.policy = CollectPolicy(report_seconds=round(interval_seconds))
        self._client = client.sibling()
        self._writer = Writer(self._client, FIELD_MANAGER)
        self._node, self._made, self._noted, self._publishers = node, make_report, noted, publishers
        self._noted_at = -NOTE_SECONDS
        self._unpublished: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nodemetric", daemon=True)
        self._log = structlog.get_logger(__name__)

    def start(self) -> None:
        """Start the thread; it sends the first report after one interval, if there is something to report."""
        self._thread.start()

    def stop(self, note_withdrawal: Apply | None = None) -> None:
        """Stop reporting. The last report stays, and its timestamp shows its age.

        The Node's annotation has no timestamp: an agent that no other follows passes the write that takes it away.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        if note_withdrawal is not None and not self._thread.is_alive():  # else the connection is in use
            try:
                self._writer.send(note_withdrawal, full_response=False)
            except CotenantError as error:
                self._log.warning("annotation of the node not removed", error=error.message)
        self._client.close()

    def report(self) -> bool:
        """Read the spec and write the status; return False if usage or Node is not known yet. Raise ClusterError."""
        body: dict[str, Any] | None = self._client.get(f"{PATH}/{self._node.name}")
        collect = ((body or {}).get("spec") or {}).get("metricCollectPolicy")
        if collect:
            self.policy = from_spec(collect)
        status_write = self._made(self.policy)
        if status_write is None:
            return False
        if body is None:
            if not self._node.uid():
                return False
            self._writer.send(own_object(self._node.name, self._node.uid(), self.policy), full_response=False)
        self._writer.send(status_write, full_response=False)
        return True

    def annotate(self, now_seconds: float) -> bool:
        """Write the Node's annotation if it changed, once per NOTE_SECONDS (monotonic time); raise ClusterError."""
        note_write = self._noted() if self._noted and now_seconds - self._noted_at >= NOTE_SECONDS else None
        if note_write is None:
            return False
        self._noted_at = now_seconds  # also when it is refused: not each minute
        self._writer.send(note_write, full_response=False)
        return True

    def _run(self) -> None:
        while not self._stopping.wait(self.policy.report_seconds):
            try:
                if self.report():
                    self.error = ""
                self.annotate(time.monotonic())
            except ClusterAbsent as error:
                self._report_error(f"{error.message}; is the CRD of NodeMetric installed?")
            except CotenantError as error:
                self._report_error(error.message)
            except Exception as error:  # noqa: BLE001 - a dead reporter would look like a dead node
                self._report_error(f"{type(error).__name__}: {error}")
            # Why one failed is told once; the NodeMetric and the agent's readiness do not depend on them.
            for publisher in self._publishers:
                problem = ""
                try:
                    publisher.publish(self._client, self._writer)
                except CotenantError as error:
                    problem = error.message
                except Exception as error:  # noqa: BLE001 - nor does the thread that reports
                    problem = f"{type(error).__name__}: {error}"
                if problem and problem != self._unpublished.get(publisher.subject):
                    self._log.warning("not published", subject=publisher.subject, error=problem)
                self._unpublished[publisher.subject] = problem

    def _report_error(self, error: str) -> None:
        if error != self.error:
            self._log.warning("not reported", error=error)
        self.error = error
