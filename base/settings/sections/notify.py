"""Settings of what scans, the watcher and the autopilot may send to a chat or another receiver."""

from __future__ import annotations

from typing import Annotated, Literal

from cotenant.base.settings.base import Section, setting


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
    rows: int = 5
    """Most severe recommendations named in the summary. Five lines are what a chat message shows without folding."""
    notes_per_hour: int = 12
    """Messages of the autopilot at most; what waits goes with the next one. One message in five minutes; what waits is
    sent with the next one, so nothing is lost.
    """
    timeout_seconds: float = 10.0
    """Patience for a connection, and for the answer. A receiver that takes longer is away; what was not sent is told in
    the log.
    """
    ca_file: Annotated[
        str,
        setting(
            "PEM file of the authorities that may sign the receiver's certificate.",
            when="the receiver's certificate is signed by an authority of your own",
        ),
    ] = ""
