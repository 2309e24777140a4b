"""Settings of telemetry: what a process says about itself."""

from __future__ import annotations

from typing import Annotated, Literal

from cotenant.settings.base import Section, setting


class TelemetrySettings(Section, frozen=True):
    """Log lines on stderr, and the small server for probes and metrics."""

    log_format: Annotated[
        Literal["console", "json"], setting("One line of text per event for people, or one JSON object for machines.")
    ] = "console"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], setting("Events below this level are not written.")
    ] = "info"
    health_host: Annotated[str, setting("Address that the probes' server listens on; 0.0.0.0 inside a pod.")] = (
        "127.0.0.1"
    )
    health_port: Annotated[
        int, setting("Port of /livez, /readyz and /metrics; 0 takes any free one.", ge=0, le=65_535)
    ] = 9464
