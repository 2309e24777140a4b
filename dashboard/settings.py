"""Settings of the dashboard: where it listens and how much it shows at once."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class DashboardSettings(Section, frozen=True):
    """The web process that shows the results in the store; it changes a cluster only with --act."""

    host: Annotated[
        str,
        setting(
            "Address to listen on; any other than loopback needs access.mode: a proxy or a login.",
            when="other machines should reach it",
            min_length=1,
        ),
    ] = "127.0.0.1"
    port: Annotated[int, setting("TCP port; 0 takes any free one.", when="the port is taken", ge=0, le=65535)] = 8050
    base_path: Annotated[
        str,
        setting(
            "Path prefix behind a proxy, with a slash at both ends.",
            when="a proxy serves the dashboard below a path",
            pattern=r"^/(.*/)?$",
        ),
    ] = "/"
    red_after_seconds: Annotated[
        int,
        setting(
            "Age of the newest sample from which a banner says that the data are stale.",
            when="scans run less often, or stale figures must show sooner",
            unit="seconds",
            ge=60,
        ),
    ] = 3600
    reload_seconds: float = 3.0
    """Shortest time between two checks for newer results in the store. Bounds the reads of the store, however many
    pages are open.
    """
    poll_seconds: int = 15
    """Seconds between two requests of an open page for newer results. Such a request is small; results come by the
    hour.
    """
    body_cap_bytes: int = 8 * 1024**2
    """Largest accepted request body; larger ones are refused (413). A page sends kilobytes; only an attack needs more.
    """
    read_seconds: float = 30.0
    """Longest time in which a request's body has to arrive (408). It ends requests that are slow on purpose; no browser
    needs so long.
    """
