"""Whether the manager's own clock can be believed: held against the API server's and against what nodes report. Pure.

Reports grow old by our clock, and what has grown old is withdrawn: a clock that is an hour ahead would take a whole
cluster's capacity within seconds. So while clocks disagree nothing is decided that rests on the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cotenant.base.kubernetes.moments import APART_SECONDS, moment

NEAR_SECONDS: Final = 600.0
"""A newest report of a cluster whose nodes report is younger than this by the right clock, and not of the future."""
FEWEST: Final = 2
"""Nodes that must agree against us: one may be wrong itself."""


def believed_ahead_seconds(
    now_seconds: float, server_seconds: float | None, reported_seconds: Iterable[float]
) -> float:
    """Return how far the time for checking nodes' reports is ahead of our clock, in seconds; 0: use our clock.

    That is the API server's where both are far apart, unless reports agree with ours alone. For the arguments see
    `server_disagrees`.
    """
    if server_seconds is None or abs(now_seconds - server_seconds) <= APART_SECONDS:
        return 0.0
    by_server, by_us = _reports_agree(server_seconds, now_seconds, reported_seconds)
    return 0.0 if by_us and not by_server else server_seconds - now_seconds


def _reports_agree(server_seconds: float, now_seconds: float, reported_seconds: Iterable[float]) -> tuple[bool, bool]:
    """Return whether any node's report is as young as it should be by the API server's time, and by ours."""
    times = list(reported_seconds)
    by_server, by_us = (
        any(-APART_SECONDS <= at - time <= NEAR_SECONDS for time in times) for at in (server_seconds, now_seconds)
    )
    return by_server, by_us


def server_disagrees(now_seconds: float, server_seconds: float | None, reported_seconds: Iterable[float]) -> str:
    """Return a sentence on how our clock and the API server's differ and which of them is wrong; "" if they agree.

    server_seconds: None = not known. reported_seconds: Unix times of nodes' reports, which tell the wrong clock.
    """
    if server_seconds is None or abs(now_seconds - server_seconds) <= APART_SECONDS:
        return ""
    by_server, by_us = _reports_agree(server_seconds, now_seconds, reported_seconds)
    if by_server and not by_us:
        which = "Nodes' reports agree with the API server: set the clock of the manager's machine."
    elif by_us and not by_server:
        which = "Nodes' reports agree with the manager: set the clock of the API server's machine."
    else:
        which = "No report says which of them is right: set both by NTP."
    direction = "ahead of" if now_seconds > server_seconds else "behind"
    apart = abs(now_seconds - server_seconds)
    return (
        f"the manager's clock ({moment(now_seconds)}) is {_format_duration(apart)} {direction} the API server's "
        f"({moment(server_seconds)}). {which} No value is withdrawn while the time is uncertain; nothing is changed."
    )


def source_disagrees(ahead_seconds: float) -> str:
    """Return a sentence on a metric source whose clock is so far ahead of ours; "" within what clocks differ by.

    Our clock is held against the API server's before, so that the source's is the one that is off.
    """
    if abs(ahead_seconds) <= APART_SECONDS:
        return ""
    return (
        f"Prometheus' clock is {_format_duration(abs(ahead_seconds))} {'ahead of' if ahead_seconds > 0 else 'behind'} "
        "the manager's and the API server's: set the clock of its machine. Until then its samples are read by its "
        "clock, and nothing is withdrawn. A scan's history has the times that Prometheus wrote."
    )


def nodes_disagree(ahead_by_node: Mapping[str, float]) -> str:
    """Return a sentence on how most nodes' clocks differ from ours; "" unless most of them disagree with ours.

    ahead_by_node: how far, in seconds, the time in a report was before ours when that report arrived; only for
    reports that arrived while we watched, from independent clocks.
    """
    most = len(ahead_by_node) / 2
    before = [ahead for ahead in ahead_by_node.values() if ahead > APART_SECONDS]
    behind = [-ahead for ahead in ahead_by_node.values() if ahead < -APART_SECONDS]
    for apart, direction in ((behind, "ahead of"), (before, "behind")):
        if len(apart) >= FEWEST and len(apart) > most:
            return (
                f"the manager's clock is {_format_duration(sorted(apart)[len(apart) // 2])} {direction} those of "
                f"{len(apart)} of {len(ahead_by_node)} nodes, whose reports keep coming. Set the clock of the "
                "manager's machine (or of these nodes). No value is withdrawn while the time is uncertain; nothing "
                "is changed."
            )
    return ""


def _format_duration(seconds: float) -> str:
    """A duration to be read: 3600 -> "60 minutes"."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 2 * APART_SECONDS else f"{seconds:.0f} seconds"
