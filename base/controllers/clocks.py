"""Compare the manager's clock with the API server's clock and with the times of nodes' reports. Pure.

Reports age by the manager's clock, and capacity with old reports is withdrawn: a clock that is an hour ahead would
withdraw a whole cluster's capacity within seconds. So nothing is decided by the time while clocks disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cotenant.base.kubernetes.moments import APART_SECONDS, moment

NEAR_SECONDS: Final = 600.0
"""By a right clock, the newest report is younger than this, and at most APART_SECONDS in the future."""
FEWEST: Final = 2
"""Least number of nodes whose clocks must contradict the manager's: a single node's clock may be wrong itself."""


def believed_ahead_seconds(
    now_seconds: float, server_seconds: float | None, reported_seconds: Iterable[float]
) -> float:
    """Return the seconds to add to the manager's time to check the age of nodes' reports; 0 if its clock is right.

    The API server's time is used if the two clocks differ by much, unless reports agree only with the manager's clock.
    `server_seconds` is None if unknown; `reported_seconds` are Unix times of nodes' reports.
    """
    if server_seconds is None or abs(now_seconds - server_seconds) <= APART_SECONDS:
        return 0.0
    by_server, by_us = _reports_agree(server_seconds, now_seconds, reported_seconds)
    return 0.0 if by_us and not by_server else server_seconds - now_seconds


def _reports_agree(server_seconds: float, now_seconds: float, reported_seconds: Iterable[float]) -> tuple[bool, bool]:
    """Return whether any node's report is recent by the API server's time, and whether one is by the manager's."""
    times = list(reported_seconds)
    by_server, by_us = (
        any(-APART_SECONDS <= at - time <= NEAR_SECONDS for time in times) for at in (server_seconds, now_seconds)
    )
    return by_server, by_us


def server_disagrees(now_seconds: float, server_seconds: float | None, reported_seconds: Iterable[float]) -> str:
    """Return a sentence on how the manager's and the API server's clocks differ, and which is wrong; "" if they agree.

    `server_seconds` is None if unknown; `reported_seconds` are Unix times of reports, which show which clock is wrong.
    """
    if server_seconds is None or abs(now_seconds - server_seconds) <= APART_SECONDS:
        return ""
    by_server, by_us = _reports_agree(server_seconds, now_seconds, reported_seconds)
    if by_server and not by_us:
        which = "Nodes' reports agree with the API server: set the clock of the manager's machine."
    elif by_us and not by_server:
        which = "Nodes' reports agree with the manager: set the clock of the API server's machine."
    else:
        which = "Nodes' reports do not show which clock is right: set both clocks by NTP."
    direction = "ahead of" if now_seconds > server_seconds else "behind"
    offset = abs(now_seconds - server_seconds)
    return (
        f"the manager's clock ({moment(now_seconds)}) is {_format_duration(offset)} {direction} the API server's "
        f"({moment(server_seconds)}). {which} Until then all published values stay: none is changed or withdrawn."
    )


def source_disagrees(ahead_seconds: float) -> str:
    """Return a sentence if Prometheus' clock is ahead of, or behind, the manager's by more than APART_SECONDS; else "".

    The caller has compared the manager's clock with the API server's before, so Prometheus' clock is the wrong one.
    """
    if abs(ahead_seconds) <= APART_SECONDS:
        return ""
    return (
        f"Prometheus' clock is {_format_duration(abs(ahead_seconds))} {'ahead of' if ahead_seconds > 0 else 'behind'} "
        "the manager's and the API server's: set the clock of Prometheus' machine. Until then the age of samples is "
        "computed by Prometheus' clock, and no published value is withdrawn. A scan stores Prometheus' times."
    )


def nodes_disagree(ahead_by_node: Mapping[str, float]) -> str:
    """Return a sentence on how most nodes' clocks differ from the manager's; "" unless most of them do.

    `ahead_by_node` has, by node, the seconds by which the time in the node's report was ahead of the manager's clock
    when the report arrived. Reports that the manager wrote, or that are older than its watch, are left out.
    """
    most = len(ahead_by_node) / 2
    before = [ahead for ahead in ahead_by_node.values() if ahead > APART_SECONDS]
    behind = [-ahead for ahead in ahead_by_node.values() if ahead < -APART_SECONDS]
    for offsets, direction in ((behind, "ahead of"), (before, "behind")):
        if len(offsets) >= FEWEST and len(offsets) > most:
            return (
                f"the manager's clock is {_format_duration(sorted(offsets)[len(offsets) // 2])} {direction} those of "
                f"{len(offsets)} of {len(ahead_by_node)} nodes that still report. Set the clock of the "
                "manager's machine (or of these nodes). Until then all published values stay: none is changed or "
                "withdrawn."
            )
    return ""


def _format_duration(seconds: float) -> str:
    """Return a duration for people: 3600 -> "60 minutes"."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 2 * APART_SECONDS else f"{seconds:.0f} seconds"
