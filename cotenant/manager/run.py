"""EDGE: the manager's process: mirrors, one thread per controller, one Lease, probes; started and stopped in order.

mirrors (nodes, NodeMetrics, NodeSLOs, the ConfigMap, pods) ──► features decide ──► Sender, while the Lease is held
store ──► pipeline in a child process ──► results ──► recommendations, forecasts
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import structlog

from cotenant.base.controllers.audit import Audit
from cotenant.base.controllers.contract import FIELD_MANAGER, ObjectNote
from cotenant.base.controllers.loop import AlwaysLeads, Feature, FeatureRunner, Hub, LoopContext, NoElection
from cotenant.base.controllers.sender import Leadership, Sender
from cotenant.base.errors import CotenantError
from cotenant.base.http.health import Checks, HealthServer
from cotenant.base.kube import EventRecorder, KubeClient, Lease, fresh_identity
from cotenant.base.kube.client import OLD_DEFINITION
from cotenant.base.kube.definitions import older_definitions
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.settings.sections import MANAGER_PORT
from cotenant.manager.feature_status import Board
from cotenant.manager.features import FeatureDependencies, enabled_features, features, mirrors_of
from cotenant.manager.pipeline import Pipeline
from cotenant.profiler.enforcement.collector import EnforcementCollector
from cotenant.settings import Settings

LEASE: Final = "cotenant-manager"
DEFINITIONS: Final = "customresourcedefinitions"
SYNC_SECONDS: Final = 120.0
"""Longest wait for the first lists in `settle`."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the manager: `cluster` is the cluster's name in the store, `elect` says whether a Lease is used."""

    cluster: str = "default"
    elect: bool = True
    identity: str = ""
    fast_forward: bool = False
    """True if the clock differs from the machine's on purpose, so that it is not compared with the API server's."""


class Manager:
    """The manager's process, by `start` and `stop` or as a context manager; `settle` runs it until nothing is due."""

    def __init__(
        self,
        client: KubeClient,
        settings: Settings,
        metrics: Metrics,
        options: Options | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Create a manager that has sent no request yet; raise SettingsError for an unknown feature."""
        options, names = options or Options(), enabled_features(settings)
        self._settings, self._clock = settings, clock or SystemClock()
        own = settings.manager
        self._lease: Lease | None = None
        if own.write and options.elect:
            identity = options.identity or fresh_identity()
            self._lease = Lease(client, own.namespace, LEASE, identity, own, self._clock)
        self.leadership: Leadership = self._lease or (AlwaysLeads() if settings.manager.write else NoElection())
        self._client = client
        audit = Audit(metrics)
        # A dry run keeps no Event, and nothing of what node agents did.
        self._events: EventRecorder | None = None
        self.gatherer: EnforcementCollector | None = None
        if own.write:
            self._events = EventRecorder(client, FIELD_MANAGER, self._clock, self.leadership.require)
            self.gatherer = EnforcementCollector(client, settings, options.cluster, self.leadership, self._clock)
        wake = threading.Event()
        self.mirrors = mirrors_of(client, settings, names, wake)
        self.board = Board(settings.manager.namespace, audit, self._events, self.mirrors)
        self.hub = Hub(self.mirrors, wake)
        self.pipeline = Pipeline(
            settings, options.cluster, self.leadership, lambda: metrics.succeeded("pipeline", self._clock), self._clock
        )
        self._piped = bool({"recommendations", "forecasts", "plans"} & set(names))
        if self._piped:
            metrics.expect("pipeline", settings.manager.pipeline_interval_seconds)
        audit.expect(names)
        server_clock = None if options.fast_forward else client.server_clock
        context = LoopContext(self.hub, self.leadership, self._clock, settings.manager, audit, self.board, server_clock)
        parts = FeatureDependencies(
            client,
            settings,
            self.mirrors,
            self.pipeline.results,
            metrics,
            options.cluster,
            self.leadership,
            self._clock,
            options.fast_forward,
            self.pipeline.published_until,
        )
        working = features(parts, names)
        reporters: list[Feature] = [self.board] if settings.manager.write else []
        self.runners: list[FeatureRunner] = []
        for feature in (*working, *reporters):
            sender = Sender(client.sibling(), self.leadership, time.monotonic, bool(feature.needs), feature.listed)
            runner = FeatureRunner(feature, sender, context)
            self.hub.join(runner)
            self.runners.append(runner)
        self._metrics = metrics

    def start(self) -> None:
        """Start to watch the cluster, to compete for the Lease and to run every feature."""
        if self._lease:
            self._lease.start()
        threading.Thread(target=self._compare_definitions, name="definitions", daemon=True).start()
        for mirror in self.mirrors.values():
            mirror.start()
        self.hub.start()
        if self._piped:
            self.pipeline.start()
        if self.gatherer:
            self.gatherer.start()
        for runner in self.runners:
            runner.start()

    def stop(self, *, withdraw: bool = True) -> None:
        """Stop the writers, withdraw published amounts that nobody would keep current, and release the Lease.

        `withdraw` is False if the cluster ends too, because nobody then reads the published amounts.
        """
        for runner in self.runners:
            runner.stop()
        for runner in self.runners if withdraw else ():
            runner.close()
        if self.gatherer:
            self.gatherer.stop()
        self.pipeline.stop()
        self.hub.stop()
        for mirror in self.mirrors.values():
            mirror.stop()
        if self._lease:
            self._lease.stop()
        if self._events:
            self._events.close()

    def __enter__(self) -> Manager:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def settle(self, patience_seconds: float = SYNC_SECONDS) -> dict[str, list[dict[str, str]]]:
        """Run the features, one after another, until they have nothing left to send; the caller then stops the manager.

        Return by feature the writes that were sent, or would be in a dry run. `patience_seconds` is the longest wait
        for the Lease and for the first lists of the watched collections.
        """
        if self._lease:
            self._lease.start()
            self._lease.wait_until_leading(patience_seconds)
        for mirror in self.mirrors.values():
            mirror.start()
        if self._piped and not self.pipeline.has_results:
            self.pipeline.run_once()
        deadline = time.monotonic() + patience_seconds
        for mirror in self.mirrors.values():
            while mirror.error is None and time.monotonic() < deadline and not mirror.wait_synced(0.05):
                continue
        return {runner.feature.name: runner.settle() for runner in self.runners}

    def rounds(self, feature: str) -> int:
        """Return how many decisions a feature has made; 0 if it does not run."""
        return sum(runner.rounds for runner in self.runners if runner.feature.name == feature)

    def checks(self) -> Checks:
        """Return the health checks; the manager is ready if no feature waits for its first lists or the API server."""
        return Checks(ready={"features": self.board.wrong})

    def _compare_definitions(self) -> None:
        """Report once which kinds the cluster serves in an older version, because writes to them will be refused."""
        with closing(self._client.sibling()) as client:
            try:
                for sentence in older_definitions(client):
                    log.warning("definition is older", found=sentence, fix=OLD_DEFINITION)
                    board_text = f"{sentence}. {OLD_DEFINITION}"
                    self.board.report_notes([ObjectNote(DEFINITIONS, "OldDefinition", board_text, warning=True)])
            except CotenantError as error:
                log.info("definitions not compared", why=error.message)


def run(manager: Manager, settings: Settings, metrics: Metrics, wait: Callable[[], None]) -> None:
    """Run the manager with probes until `wait` returns, then release the Lease."""
    checks = manager.checks()
    with HealthServer(checks, metrics, settings.telemetry, MANAGER_PORT) as health, manager:
        log.info(
            "manager runs",
            port=health.port,
            write=settings.manager.write,
            features=[r.feature.name for r in manager.runners],
        )
        wait()
        checks.draining = True
