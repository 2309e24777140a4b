"""Settings of what scans, the watcher and the autopilot may send to a chat or another receiver."""

from __future__ import annotations

from typing import Annotated, Literal

from cotenant.base.settings.base import Section, setting


class NotifySettings(Section, frozen=True):
    """The receiver of a scan's summary, its format, and the severity from which it is sent."""

    url_file: Annotated[
        str, setting("File that holds the receiver's address, which is a secret; empty sends nothing.")
    ] = ""
    format: Annotated[
        Literal["slack", "json"], setting("slack: a message for Slack's incoming webhooks; json: plain figures.")
    ] = "slack"
    minimum_severity: Annotated[
        Literal["good", "ok", "warning", "critical"],
        setting("Nothing is sent when no recommendation or finding is this severe."),
    ] = "warning"
    peak_hours: Annotated[
        float,
        setting("The watcher tells of the cluster's next peak so long before it; 0: never.", unit="hours", ge=0, le=24),
    ] = 2.0
    rows: Annotated[int, setting("Most severe recommendations named in the summary.", ge=0, le=20)] = 5
    notes_per_hour: Annotated[
        int, setting("Messages of the autopilot at most; what waits goes with the next one.", ge=1, le=3600)
    ] = 12
    timeout_seconds: Annotated[
        float, setting("Patience for a connection, and for the answer.", unit="seconds", gt=0, le=120)
    ] = 10.0
    ca_file: Annotated[str, setting("PEM file of the authorities that may sign the receiver's certificate.")] = ""
