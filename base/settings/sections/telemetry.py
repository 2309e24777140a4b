"""Settings of telemetry: logs and metrics of a process."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cotenant.base.settings.base import Port, Section, setting

MANAGER_PORT: Final = 9464
EXTENDER_PORT: Final = 9465
ENFORCER_PORT: Final = 9466
RECORDER_PORT: Final = 9467
"""Default of `health_port` in each program that serves it."""


class TelemetrySettings(Section, frozen=True):
    """Log lines on stderr, and the small server for probes and metrics."""

    log_format: Annotated[
        Literal["console", "json"],
        setting(
            "One line of text per event for people, or one JSON object for machines.", when="a collector reads the log"
        ),
    ] = "console"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting("Events below this level are not written.", when="you investigate a problem"),
    ] = "info"
    health_host: Annotated[
        str,
        setting(
            "Address that the probes' server listens on; '::' inside a pod: all of IPv6 and IPv4.",
            when="probes come from outside the machine",
        ),
    ] = "127.0.0.1"
    health_port: Annotated[
        Port | None,
        setting(
            "Port of /livez, /readyz and /metrics; 0 takes any free one. Unset: each program has its own (manager "
            f"{MANAGER_PORT}, extender {EXTENDER_PORT}, enforcer {ENFORCER_PORT}, recorder {RECORDER_PORT}), so that "
            "all run on one machine.",
            when="the port is taken",
        ),
    ] = None
