"""EDGE: Prometheus metrics of a process.

They are in an object that is passed to the code that measures, not in the client library's global registry. Separate
from logs: commands that serve no metrics do not load that library. Needs nothing beyond the base install.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Info
from prometheus_client.exposition import choose_encoder

from cotenant.base.process.clock import Clock


class Metrics:
    """The metrics of one process with their help texts; names follow Prometheus' conventions (base units)."""

    def __init__(self, version: str, python: str) -> None:
        """Create a separate registry; `cotenant_build_info` has the versions."""
        self.registry = CollectorRegistry()
        build = Info("cotenant_build", "Version of cotenant and of Python.", registry=self.registry)
        build.info({"version": version, "python": python})
        self.last_success = Gauge(
            "cotenant_last_success_timestamp_seconds",
            "Unix time at which a task last succeeded in this process; 0 before that.",
            ["task"],
            registry=self.registry,
        )
        self.task_interval = Gauge(
            "cotenant_task_interval_seconds",
            "Time between two runs of a task, by the settings of this process.",
            ["task"],
            registry=self.registry,
        )

    def expect(self, task: str, interval_seconds: float) -> None:
        """Create the series of a task that will run every `interval_seconds`, because alerts ignore missing series."""
        self.last_success.labels(task)
        self.task_interval.labels(task).set(interval_seconds)

    def succeeded(self, task: str, clock: Clock) -> None:
        """Set the time of the task's last success to now."""
        self.last_success.labels(task).set(clock.now_seconds())

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as text in the format that the Accept header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
