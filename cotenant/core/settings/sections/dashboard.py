"""Settings of the dashboard: where it listens, when data count as old, how much it shows at once."""

from __future__ import annotations

from typing import Annotated

from cotenant.core.settings.base import Section, setting


class DashboardSettings(Section, frozen=True):
    """The web process that shows results; it reads the store and changes nothing."""

    host: Annotated[
        str, setting("Address to listen on; loopback unless something in front asks who is there.", min_length=1)
    ] = "127.0.0.1"
    port: Annotated[int, setting("TCP port; 0 takes any free one.", ge=0, le=65535)] = 8050
    base_path: Annotated[
        str, setting("Path prefix behind a proxy, with a slash at both ends.", pattern=r"^/(.*/)?$")
    ] = "/"
    amber_after_seconds: Annotated[
        int, setting("Age of the newest sample from which the badge turns amber.", unit="seconds", ge=60)
    ] = 900
    red_after_seconds: Annotated[
        int, setting("Age of the newest sample from which the page carries a stale banner.", unit="seconds", ge=60)
    ] = 3600
    reload_seconds: Annotated[
        float, setting("Shortest time between two looks for newer results in the store.", unit="seconds", ge=0, le=300)
    ] = 3.0
    poll_seconds: Annotated[
        int, setting("How often an open page asks whether there are newer results.", unit="seconds", ge=2, le=3600)
    ] = 15
    body_cap_bytes: Annotated[
        int, setting("Larger request bodies are refused (413).", unit="bytes", ge=65_536, le=1 << 30)
    ] = 8 * 1024**2
    read_seconds: Annotated[
        float, setting("Longest that a request's body may take to come (408).", unit="seconds", gt=0, le=3600)
    ] = 30.0
    page_rows: Annotated[int, setting("Rows that a grid fetches at once.", unit="rows", ge=20, le=1000)] = 100
    waste_bars: Annotated[int, setting("Namespaces in the waste ranking.", unit="namespaces", ge=3, le=50)] = 10
