"""EDGE: one extender process put together: feed, application, server; also as a context manager."""

from __future__ import annotations

from time import monotonic

from cotenant.base.allocation.allocator import Allocator
from cotenant.base.allocation.device_allocator import DeviceAllocator
from cotenant.base.kube import KubeClient
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import Clock
from cotenant.base.settings.sections.telemetry import TelemetrySettings
from cotenant.scheduler_ext.extender.cpus import cpu_allocator
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.app import ExtenderApp, ExtenderDependencies
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import ExtenderServer
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import RESERVING
from cotenant.scheduler_ext.extender.watch.feed import Feed, SnapshotFeed


def allocators(settings: ExtenderSettings) -> tuple[Allocator, ...]:
    """Return the allocators that give pods hardware at binding; none unless the settings switch them on."""
    cpus: tuple[Allocator, ...] = (cpu_allocator(),) if settings.cpus.on else ()
    return (*cpus, DeviceAllocator()) if settings.devices.on else cpus


class ExtenderService:
    """A running `cotenant serve extender`."""

    def __init__(
        self,
        client: KubeClient,
        settings: ExtenderSettings,
        clock: Clock,
        metrics: Metrics,
        telemetry: TelemetrySettings | None = None,
    ) -> None:
        """Bind the port; nothing is asked yet."""
        self.view = SnapshotFeed()
        allocation = HardwareAllocation(allocators(settings))
        self.app = ExtenderApp(
            ExtenderDependencies(self.view, settings, clock, metrics, Binder(client.sibling, allocation))
        )
        shown = self.app.counts.certificate_shown
        self.server = ExtenderServer(self.app, settings, self.app.collect_garbage, shown=shown)
        self.feed = Feed(self.view, client, settings, telemetry)
        self._settings = settings
        self.app.checks.ready["view"] = self._wrong

    def start(self) -> None:
        """Serve; rules speak as soon as the view is complete."""
        self.feed.start()
        self.server.start()

    def stop(self) -> None:
        """Stop the server and the watcher."""
        self.app.checks.draining = True
        self.server.stop()
        self.feed.stop()

    def __enter__(self) -> ExtenderService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wrong(self) -> str:
        """Why rules do not speak yet, or ""."""
        snapshot = self.view.snapshot
        if problem := snapshot.problem():
            return problem
        age = snapshot.age_seconds(monotonic(), RESERVING)
        return "" if age <= self._settings.stale_seconds else f"the view is {age:.0f} s old"
