"""EDGE: collects the Events of node agents and stores them for the dashboard.

    Events of the agents --Mirror--> changed ones --> actions --> a child process --> store

Each changed Event is passed on once, and again if it could not be stored. A round without new Events is stored from
time to time too, so that the page can show how recent its data are.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Final

import msgspec
import structlog

from cotenant.base.controllers.sender import Leadership
from cotenant.base.errors import ClusterForbidden
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.process.clock import Clock
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import ManagerSettings, StoreSettings, TelemetrySettings
from cotenant.enforcer.model.agents import EVENTS, OURS, RIGHT, EventWire, acts_of, count_agents
from cotenant.enforcer.model.enforcement import AgentAction, Gathering
from cotenant.profiler.enforcement.collector_child import CollectorJob
from cotenant.profiler.settings import ProfilerSettings

ENFORCEMENT_INTERVAL_SECONDS: Final = 60.0
"""Time between two rounds that collect node agents' Events for the dashboard. An API server keeps Events for an hour:
once a minute loses none."""

CHILD: Final = ("-m", "cotenant.profiler.enforcement.collector_child")
QUIET_SECONDS: Final = 600.0
"""Time after which a round without new Events is stored."""
CHILD_SECONDS: Final = 600.0
"""Time after which a child process that has not stored its round is ended."""
POLL_SECONDS: Final = 0.5
log = structlog.get_logger(__name__)


class EnforcementCollector:
    """Collects Events of node agents in one thread; stores them only while this replica holds the Lease."""

    def __init__(
        self, client: KubeClient, settings: SettingSections, cluster: str, leadership: Leadership, clock: Clock
    ) -> None:
        self.kept = 0
        """Rounds that were stored."""
        self._client = client.sibling()
        self._mirror: Mirror[EventWire] = Mirror(client, EVENTS, EventWire, fieldSelector=OURS)
        self._settings, self._cluster, self._leadership, self._clock = settings, cluster, leadership, clock
        self._waiting: set[tuple[str, str]] = set()
        self._kept_seconds = -float("inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="enforcement", daemon=True)

    def start(self) -> None:
        """Start watching Events, and store new ones once per interval."""
        self._mirror.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching Events, and wait for the thread to end."""
        self._stopping.set()
        self._mirror.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def collect(self) -> bool:
        """Collect new Events once; return whether something was stored."""
        now = self._clock.now_seconds()
        self._waiting |= self._mirror.changes()
        acts: tuple[AgentAction, ...] = ()
        if (error := self._mirror.error) is not None:
            forbidden = isinstance(error, ClusterForbidden)
            fix = error.fix or (RIGHT if forbidden else "")
            gathering = Gathering(now, trouble=error.message, fix=fix, forbidden=forbidden)
        else:
            events = self._mirror.snapshot()
            acts = tuple(acts_of((events[key] for key in self._waiting if key in events), now))
            gathering = count_agents(self._client, acts, now)
        if not acts and now - self._kept_seconds < QUIET_SECONDS:
            return False
        settings = self._settings
        job = CollectorJob(
            settings.section(StoreSettings),
            settings.section(ProfilerSettings).prometheus,
            settings.section(TelemetrySettings),
            settings.section(ManagerSettings).enforcement_days,
            self._cluster,
            gathering,
            acts,
        )
        stored = self._child(msgspec.json.encode(job)) == 0
        if stored:
            if not gathering.trouble:  # otherwise nothing was read of what waits
                self._waiting.clear()
            self._kept_seconds = now
            self.kept += 1
        return stored

    def _child(self, job: bytes) -> int:
        """Run the child process and return its exit code; kill it if it takes too long or the collector stops."""
        give_up = time.monotonic() + CHILD_SECONDS
        payload: bytes | None = job
        with subprocess.Popen([sys.executable, *CHILD], stdin=subprocess.PIPE) as child:  # noqa: S603
            while True:
                try:
                    child.communicate(payload, timeout=POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    payload = None  # it has it, or reads on
                    if self._stopping.is_set() or time.monotonic() > give_up:
                        child.kill()
                else:
                    return child.returncode

    def _run(self) -> None:
        while not self._stopping.wait(ENFORCEMENT_INTERVAL_SECONDS):
            if not self._leadership.is_leading:
                continue
            try:
                self.collect()
            except Exception as error:  # noqa: BLE001 - a dead listener would look like quiet agents
                log.warning("node agents' Events were not collected", error=f"{type(error).__name__}: {error}")
