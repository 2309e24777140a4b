"""Settings of what scans, the watcher and the autopilot may send to a chat or another receiver."""

from __future__ import annotations

from typing import Annotated, Literal

from cotenant.base.settings.base import Section, constant, setting


class NotifySettings(Section, frozen=True):
    """The receiver of a scan's summary, its format, and the severity from which it is sent."""

    url_file: Annotated[
        str,
        setting(
            "File that holds the receiver's address, which is a secret; empty sends nothing.",
            when="summaries should go to a chat or a receiver of yours",
        ),
    ] = ""
    format: Annotated[
        Literal["slack", "json"],
        setting(
            "slack: a message for Slack's incoming webhooks; json: plain figures.", when="the receiver is no Slack"
        ),
    ] = "slack"
    minimum_severity: Annotated[
        Literal["good", "ok", "warning", "critical"],
        setting(
            "Nothing is sent when no recommendation or finding is this severe.",
            when="messages are too many, or too few",
        ),
    ] = "warning"
    rows: Annotated[int, constant("Most severe recommendations named in the summary.")] = 5
    notes_per_hour: Annotated[
        int, constant("Messages of the autopilot at most; what waits goes with the next one.")
    ] = 12
    timeout_seconds: Annotated[float, constant("Patience for a connection, and for the answer.", unit="seconds")] = 10.0
    ca_file: Annotated[
        str,
        setting(
            "PEM file of the authorities that may sign the receiver's certificate.",
            when="the receiver's certificate is signed by an authority of your own",
        ),
    ] = ""
